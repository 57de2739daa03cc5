"""The log of a run: lines with their times, which later ones are added to."""

from datetime import datetime

import pytest

from penstock.errors import RunFolderError
from penstock.metrics.report import STEPS_PER_SECOND, Report
from penstock.metrics.run_log import RUN_LOG, RunLog, add_to_log


def test_a_log_has_notes_every_tenth_update_and_the_last_one_each_with_its_time(tmp_path) -> None:
    log = RunLog(tmp_path, 1000, 10)
    for update in range(1, 13):
        log.write(Report(update, 10 * update, 0.1 * update, {STEPS_PER_SECOND: 100.0}))
    log.write(Report(12, 120, 1.2, {}, note="env.0 was ended"))
    log.close()
    log.close()
    lines = [line.split(" ", 1) for line in (tmp_path / RUN_LOG).read_text().splitlines()]
    assert [text.partition(" | ")[0] for _, text in lines] == ["update 10", "env.0 was ended", "update 12"]
    assert all(datetime.fromisoformat(time).tzinfo is not None for time, _ in lines)


def test_a_second_life_adds_to_the_log_and_a_text_of_several_lines_has_a_time_at_each(tmp_path) -> None:
    add_to_log(tmp_path, "first", "second")
    RunLog(tmp_path, 1000, 10).close()
    add_to_log(tmp_path, "third\nfourth \udce4")
    lines = (tmp_path / RUN_LOG).read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["first", "second", "third", "fourth \\udce4"]


def test_a_log_that_cannot_be_written_is_an_error_in_one_line(tmp_path) -> None:
    (tmp_path / RUN_LOG).mkdir()
    with pytest.raises(RunFolderError, match=r"^cannot write .*run\.log: Is a directory$"):
        RunLog(tmp_path, 1000, 10)
