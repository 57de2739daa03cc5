"""The log of a run: lines with their times, which later ones are added to."""

from datetime import datetime
from pathlib import Path

import pytest

from penstock.errors import RunFolderError
from penstock.metrics import run_log
from penstock.metrics.progress import Lines
from penstock.metrics.report import STEPS_PER_SECOND, Report
from penstock.metrics.run_log import RUN_LOG, ProcessLines, RunLog, add_to_log


def test_a_log_has_notes_every_tenth_update_and_the_last_one_each_with_its_time(tmp_path) -> None:
    log = RunLog(tmp_path, Lines(1000, 10))
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
    RunLog(tmp_path, Lines(1000, 10)).close()
    add_to_log(tmp_path, "third\nfourth \udce4")
    lines = (tmp_path / RUN_LOG).read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["first", "second", "third", "fourth \\udce4"]


def test_a_log_that_cannot_be_written_is_an_error_in_one_line(tmp_path) -> None:
    (tmp_path / RUN_LOG).mkdir()
    with pytest.raises(RunFolderError, match=r"^cannot write .*run\.log: Is a directory$"):
        RunLog(tmp_path, Lines(1000, 10))


def logged(folder: Path) -> list[str]:
    """The lines of the log, without their times."""
    return [line.split(" ", 1)[1] for line in (folder / RUN_LOG).read_text().splitlines()]


def test_what_processes_log_stands_in_the_log_once_with_level_process_and_count(tmp_path: Path) -> None:
    lines = ProcessLines(tmp_path)
    for process in range(12):
        lines.add(f"env.{process}", "WARNING", "too hot", 1)
    lines.add("learner", "ERROR", "no sensor", 1)
    lines.add("env.0", "WARNING", "too hot", 90)
    lines.add("env.0", "WARNING", "too hot", 5)
    lines.close()
    lines.close()
    assert logged(tmp_path) == [
        "WARNING env.0: too hot",
        "WARNING env.9: too hot (10 times so far, in 10 processes)",
        "ERROR learner: no sensor",
        "WARNING env.0: too hot (102 times so far, in 12 processes)",
        "WARNING env.0: too hot (107 times in all, in 12 processes)",
    ]


def test_a_line_that_one_process_logs_many_times_at_once_has_its_count_at_once(tmp_path: Path) -> None:
    lines = ProcessLines(tmp_path)
    lines.add("env.0", "WARNING", "too hot", 3)
    lines.close()
    assert logged(tmp_path) == ["WARNING env.0: too hot (3 times so far)"]


def test_of_very_many_different_lines_the_oldest_is_forgotten_with_its_count(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(run_log, "KNOWN_LINES", 2)
    lines = ProcessLines(tmp_path)
    for text in ("a", "a", "b", "c", "a"):
        lines.add("env.0", "WARNING", text, 1)
    lines.close()
    assert logged(tmp_path) == [
        "WARNING env.0: a",
        "WARNING env.0: b",
        "WARNING env.0: a (2 times in all)",
        "WARNING env.0: c",
        "WARNING env.0: a",
    ]


def test_a_log_that_cannot_be_written_and_no_log_at_all_end_no_run(tmp_path: Path) -> None:
    (tmp_path / RUN_LOG).mkdir()
    for folder in (tmp_path, None):
        lines = ProcessLines(folder)
        lines.add("env.0", "WARNING", "too hot", 1)
        lines.close()
    assert list((tmp_path / RUN_LOG).iterdir()) == []
