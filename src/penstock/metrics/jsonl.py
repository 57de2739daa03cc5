"""The log of every metric, one JSON object a line, in ``RUN/metrics.jsonl``; and what reads it back."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.metrics.report import EVAL_RETURN, FINAL, Report

__all__ = ["METRICS", "JsonLines", "each_report", "evaluations", "read_reports"]

METRICS = "metrics.jsonl"


class JsonLines:
    """Appends reports to a run's log, each flushed.

    Args:
        folder: the run folder.
        resumed_update: lines of later updates are of a life that was abandoned, and are cut off; 0 for a new run,
            ``None`` to go on behind what is there.

    Raises:
        OSError: the log cannot be written.
    """

    def __init__(self, folder: Path, resumed_update: int | None = 0) -> None:
        path = folder / METRICS
        _cut(path, math.inf if resumed_update is None else resumed_update)
        self._file = path.open("ab")

    def write(self, report: Report) -> None:
        """Append one line; a number that JSON cannot hold is written as null."""
        values = {name: value if math.isfinite(value) else None for name, value in report.values.items()}
        line: dict[str, Any] = {
            "update": report.update,
            "steps": report.steps,
            "time_s": round(report.time_s, 3),
            **values,
        }
        if report.note:
            line["note"] = report.note
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the log."""
        self._file.close()


def read_reports(folder: Path) -> list[Report]:
    """Every report of a run, in the order written; a line that was cut short by a death is left out.

    Raises:
        OSError: there is no log.
    """
    return list(each_report(folder))


def each_report(folder: Path) -> Iterator[Report]:
    """As ``read_reports``, one after the other: a log may be larger than what a process should hold."""
    with (folder / METRICS).open("rb") as file:
        yield from (_report(line) for raw in file if (line := _parsed(raw)) is not None)


def evaluations(folder: Path) -> dict[int, float]:
    """Update -> mean return of its evaluation on the way, for those in a run's log; of several of one update the last.

    A log that is not there holds none. Evaluations at a run's end are left out: nothing is chosen by their episodes.
    """
    name = EVAL_RETURN.encode()
    try:
        with (folder / METRICS).open("rb") as file:
            # Few lines hold one, and a log may be long.
            lines = [line for raw in file if name in raw and (line := _parsed(raw)) is not None]
    except OSError:
        return {}
    on_the_way = (report for report in map(_report, lines) if FINAL not in report.values)
    found = [(report.update, report.values.get(EVAL_RETURN, math.nan)) for report in on_the_way]
    return {update: value for update, value in found if not math.isnan(value)}


def _cut(path: Path, update: float) -> None:
    """Leave out lines after ``update``, and a last line that a death cut short."""
    if not path.exists():
        return
    with path.open("rb") as log:
        if all(_kept(line, update) for line in log):
            return
    partial = path.with_name(path.name + ".partial")
    with path.open("rb") as log, partial.open("wb") as file:
        file.writelines(line for line in log if _kept(line, update))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _kept(line: bytes, update: float) -> bool:
    return line.endswith(b"\n") and (read := _parsed(line)) is not None and read["update"] <= update


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict):
        return None
    head: list[Any] = [line.get(key) for key in ("update", "steps", "time_s")]
    return line if all(_is_number(value) and math.isfinite(value) for value in head) else None


def _is_number(value: Any) -> bool:  # noqa: ANN401 - whatever JSON holds
    """A number that has a float: JSON's whole numbers may be of any length."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)


def _report(line: dict[str, Any]) -> Report:
    head = {"update", "steps", "time_s"}
    values = {
        name: math.nan if value is None else float(value)
        for name, value in line.items()
        if name not in head and (value is None or _is_number(value))
    }
    return Report(int(line["update"]), int(line["steps"]), float(line["time_s"]), values)
