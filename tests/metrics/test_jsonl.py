import json
import math

import pytest

from penstock.metrics.jsonl import (
    METRICS,
    GrowingEvaluations,
    GrowingLog,
    JsonLines,
    evaluations,
    final_evaluations,
    read_reports,
)
from penstock.metrics.report import Report


def report(update, **values):
    return Report(update, update * 10, update / 2, {"loss/policy": 0.5, **values})


def written(folder, updates, resumed_update=0):
    log = JsonLines(folder, resumed_update)
    for update in updates:
        log.write(report(update))
    log.close()
    log.close()


def test_each_report_is_one_line_on_the_disk_at_once(tmp_path):
    log = JsonLines(tmp_path)
    log.write(report(1))
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line == {"update": 1, "steps": 10, "time_s": 0.5, "loss/policy": 0.5}
    log.close()


def test_reports_read_back(tmp_path):
    written(tmp_path, [1, 2, 3])
    assert read_reports(tmp_path) == [report(1), report(2), report(3)]


def test_returns_of_episodes_are_kept_and_a_damaged_list_of_them_is_left_out(tmp_path):
    log = JsonLines(tmp_path)
    log.write(report(1)._replace(returns=(1.5, math.inf, 2.0)))
    log.close()
    path = tmp_path / "metrics.jsonl"
    assert json.loads(path.read_text())["returns"] == [1.5, None, 2.0]
    assert read_reports(tmp_path) == [report(1)._replace(returns=(1.5, 2.0))]
    path.write_text('{"update": 1, "steps": 10, "time_s": 0.5, "loss/policy": 0.5, "returns": "all"}')
    assert read_reports(tmp_path) == [report(1)]


def test_resuming_cuts_off_the_life_that_was_abandoned(tmp_path):
    written(tmp_path, [1, 2, 3, 4])
    written(tmp_path, [3, 4, 5], resumed_update=2)
    assert [each.update for each in read_reports(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_line_that_a_death_cut_short_is_left_out(tmp_path):
    written(tmp_path, [1, 2])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 3, "steps": 30, "ti')
    assert [each.update for each in read_reports(tmp_path)] == [1, 2]
    written(tmp_path, [3], resumed_update=2)
    assert [each.update for each in read_reports(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_hold(tmp_path, value):
    log = JsonLines(tmp_path)
    log.write(report(1, bad=value))
    log.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["bad"] is None
    assert math.isnan(read_reports(tmp_path)[0].values["bad"])


def test_no_log(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_reports(tmp_path)


def test_lines_of_something_else_are_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '[]\n{"update": "x"}\n\n{"update": 1, "steps": 2, "time_s": 3, "note": "text"}\n'
    )
    assert read_reports(tmp_path) == [Report(1, 2, 3.0, {})]


def test_evaluations_by_their_update(tmp_path):
    assert evaluations(tmp_path) == {}
    written(tmp_path, [1, 2])
    log = JsonLines(tmp_path, None)
    for update, value in ((1, 3.0), (2, math.nan), (4, 5.0), (4, 6.0)):
        log.write(Report(update, 1, 0.0, {"eval/return_mean": value}))
    log.write(Report(4, 1, 0.0, {"eval/return_mean": 7.0, "eval/final": 1.0}))
    log.close()
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 5, "eval/return_mean": 9')
    assert evaluations(tmp_path) == {1: 3.0, 4: 6.0}
    assert final_evaluations(tmp_path) == {4: 7.0}


def test_evaluations_of_a_run_that_goes_on_are_those_of_its_log_at_any_time(tmp_path):
    growing = GrowingEvaluations(tmp_path)
    assert growing.now() == {}
    log = JsonLines(tmp_path)
    for update in range(1, 9):
        log.write(Report(update, 8 * update, 0.0, {"eval/return_mean": float(update)} if update % 2 else {"loss": 1.0}))
        assert growing.now() == evaluations(tmp_path)
    log.close()
    # A resume cuts off what it will learn again.
    JsonLines(tmp_path, resumed_update=4).close()
    assert growing.now() == evaluations(tmp_path) == {1: 1.0, 3: 3.0}


def test_a_growing_log_gives_each_report_once_and_says_when_it_begins_anew(tmp_path):
    path = tmp_path / METRICS
    lines = [b'{"update": %d, "steps": %d, "time_s": 0.5}\n' % (update, 8 * update) for update in range(1, 5)]
    path.write_bytes(b"".join(lines[:2]) + lines[2][:10])
    log = GrowingLog(tmp_path)
    reports, anew = log.new()
    assert ([report.update for report in reports], anew) == ([1, 2], True)
    path.write_bytes(b"".join(lines[:3]))
    reports, anew = log.new()
    assert ([report.update for report in reports], anew) == ([3], False)
    assert log.new() == ([], False)
    # A resume from an earlier checkpoint cuts lines off: into another file, or into a shorter one.
    (tmp_path / "other").write_bytes(lines[0] + lines[3])
    (tmp_path / "other").replace(path)
    reports, anew = log.new()
    assert ([report.update for report in reports], anew) == ([1, 4], True)
    path.write_bytes(lines[0])
    assert ([report.update for report in log.new()[0]], len(log.new()[0])) == ([1], 0)
