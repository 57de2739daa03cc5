"""Writes and reads the log of all metrics, ``RUN/metrics.jsonl``: one JSON object a line."""

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.metrics.report import EVAL_RETURN, FINAL, Report

__all__ = [
    "METRICS",
    "GrowingEvaluations",
    "GrowingLog",
    "JsonLines",
    "each_report",
    "evaluations",
    "final_evaluations",
    "read_reports",
]

METRICS = "metrics.jsonl"


class JsonLines:
    """Appends reports to a run's log, and flushes each.

    Args:
        folder: the run folder.
        resumed_update: the update that the run continues from; 0 for a new run. Lines of later updates are cut off.
            ``None`` keeps all lines.

    Raises:
        OSError: the log cannot be written.
    """

    def __init__(self, folder: Path, resumed_update: int | None = 0) -> None:
        path = folder / METRICS
        _cut(path, math.inf if resumed_update is None else resumed_update)
        self._file = path.open("ab")

    def write(self, report: Report) -> None:
        """Append one line. NaN and infinity are written as null, because JSON has neither."""
        values = {name: _finite(value) for name, value in report.values.items()}
        line: dict[str, Any] = {
            "update": report.update,
            "steps": report.steps,
            "time_s": round(report.time_s, 3),
            **values,
        }
        if report.note:
            line["note"] = report.note
        if report.returns:
            line["returns"] = [_finite(value) for value in report.returns]
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the log."""
        self._file.close()


def read_reports(folder: Path) -> list[Report]:
    """Every report of a run, in the order written. Leaves out a line that the death of the writer cut short.

    Raises:
        OSError: there is no log.
    """
    return list(each_report(folder))


def each_report(folder: Path) -> Iterator[Report]:
    """As ``read_reports``, one report at a time, because a log may be large."""
    with (folder / METRICS).open("rb") as file:
        yield from (_report(line) for raw in file if (line := _parsed(raw)) is not None)


class GrowingLog:
    """Reads the log of a run that goes on, each line once.

    Args:
        folder: the run folder.
        metric: only reports that have it are read. Few may have it, and a log may be long.
    """

    def __init__(self, folder: Path, metric: str = "") -> None:
        self.folder = folder
        self._metric = metric.encode()
        self._file = 0
        """Number of the file that was read last. A resume that cuts lines off makes another one."""
        self._read = 0
        """Its bytes so far."""

    def new(self) -> tuple[list[Report], bool]:
        """The reports since the last call, and whether the log has begun anew, so that earlier ones count no more.

        Raises:
            OSError: there is no log.
        """
        with (self.folder / METRICS).open("rb") as file:
            status = os.fstat(file.fileno())
            anew = status.st_ino != self._file or status.st_size < self._read
            if anew:
                self._file, self._read = status.st_ino, 0
            file.seek(self._read)
            reports = []
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                self._read += len(raw)
                if self._metric in raw and (line := _parsed(raw)) is not None:
                    reports.append(_report(line))
        return reports, anew


class GrowingEvaluations:
    """The evaluations of a run that goes on, as `evaluations` finds them. Reads each line of its log once."""

    def __init__(self, folder: Path) -> None:
        self._log = GrowingLog(folder, EVAL_RETURN)
        self._found: dict[int, float] = {}

    def now(self) -> Mapping[int, float]:
        """All of them up to now."""
        with contextlib.suppress(OSError):
            reports, anew = self._log.new()
            if anew:
                self._found.clear()
            self._found |= _returns(report for report in reports if FINAL not in report.values)
        return self._found


def evaluations(folder: Path) -> Mapping[int, float]:
    """Update -> mean return of its evaluation during the run; the last one if an update has several.

    Empty if there is no log. Leaves out final evaluations: no checkpoint is chosen by their episodes.
    """
    return GrowingEvaluations(folder).now()


def final_evaluations(folder: Path) -> dict[int, float]:
    """Update -> mean return of the evaluation at the end of the run, and of each time that it was resumed."""
    try:
        reports, _ = GrowingLog(folder, EVAL_RETURN).new()
    except OSError:
        return {}
    return _returns(report for report in reports if FINAL in report.values)


def _returns(reports: Iterable[Report]) -> dict[int, float]:
    found = [(report.update, report.values.get(EVAL_RETURN, math.nan)) for report in reports]
    return {update: value for update, value in found if not math.isnan(value)}


def _cut(path: Path, update: float) -> None:
    """Remove the lines of updates after ``update``, and a last line that the death of the writer cut short."""
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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _is_number(value: Any) -> bool:  # noqa: ANN401 - whatever JSON holds
    """True for a number that fits a float: whole numbers in JSON may have any length."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)


def _report(line: dict[str, Any]) -> Report:
    head = {"update", "steps", "time_s"}
    values = {
        name: math.nan if value is None else float(value)
        for name, value in line.items()
        if name not in head and (value is None or _is_number(value))
    }
    returns = line.get("returns")
    listed = tuple(float(value) for value in returns if _is_number(value)) if isinstance(returns, list) else ()
    return Report(int(line["update"]), int(line["steps"]), float(line["time_s"]), values, returns=listed)
