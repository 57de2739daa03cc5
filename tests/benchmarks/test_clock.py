"""When a run's log first shows that the run has reached a threshold. Nothing is trained, and no time is judged."""

import json
from pathlib import Path

import pytest

from benchmarks.learning.clock import Clock


def log(folder: Path, *returns: float | None) -> None:
    """Append a report for each value; ``None``: a report without an evaluation."""
    folder.mkdir(exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        for value in returns:
            file.write(json.dumps({"update": 1} | ({} if value is None else {"eval/return_mean": value})) + "\n")


def test_an_evaluation_at_the_threshold_stops_the_clock(tmp_path: Path) -> None:
    with Clock(tmp_path, -160) as clock:
        log(tmp_path / "run", None, -170.0, -160.0, -200.0)
    assert clock.reached_s is not None
    assert 0 < clock.reached_s <= clock.seconds


def test_below_the_threshold_it_goes_on(tmp_path: Path) -> None:
    with Clock(tmp_path, -160) as clock:
        log(tmp_path / "run", None, -170.0, -160.5)
    assert clock.reached_s is None
    assert clock.seconds > 0


def test_a_run_that_was_there_before_is_not_looked_at(tmp_path: Path) -> None:
    log(tmp_path / "earlier", -100.0)
    with Clock(tmp_path, -160) as clock:
        log(tmp_path / "run", -170.0)
    assert clock.reached_s is None


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    with Clock(tmp_path, -160) as clock:
        log(tmp_path / "run", -170.0)
        with (tmp_path / "run/metrics.jsonl").open("a") as file:
            file.write('{"update": 2, "eval/ret')
            file.flush()
            clock.look()
            file.write('urn_mean": -150.0}\n')
    assert clock.reached_s is not None


def test_a_run_that_fails_ends_the_clock(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no run"), Clock(tmp_path, -160) as clock:
        raise RuntimeError("no run")
    assert clock.reached_s is None
