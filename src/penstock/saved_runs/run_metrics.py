"""Reads the metrics of a run: each as a series, or as one number for many lines. Writes and draws nothing."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.config.values import count_of
from penstock.errors import ConfigError, RunFolderError, nearest
from penstock.metrics.aggregation import AGGREGATIONS, quantile
from penstock.metrics.jsonl import read_reports
from penstock.metrics.levels import LEVELS, level_of
from penstock.metrics.report import Report
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Array

__all__ = ["KINDS", "Metrics", "Question", "Series", "as_json", "as_table", "read_metrics"]

KINDS: Mapping[str, Callable[[Array], float]] = {"last": lambda values: float(values[-1]), **AGGREGATIONS}
"""Kind of number -> how it is found from values. There is also ``quantile``, which needs ``q``."""
QUANTILE = "quantile"
_SHOWN = ("last", "mean", "min", "max")
"""Columns of a table if no kind is asked for."""


class Series(NamedTuple):
    """A metric over the lines of a run that have it. All arrays are ``[n]``, in the order written."""

    updates: Array
    """int64."""
    steps: Array
    """Environment steps so far, int64."""
    seconds: Array
    """Seconds of training so far, float64."""
    values: Array
    """float64. Lines with NaN or infinity are left out."""


class Question(NamedTuple):
    """Which metrics are asked for, and as which number."""

    name: str | None = None
    """One metric; ``None``: all of the level."""
    level: str | None = None
    """One of `penstock.metrics.levels.LEVELS`; ``None``: all levels."""
    kind: str | None = None
    """``None``: the last value, the mean, the smallest and the largest."""
    q: float | None = None
    last: int | None = None

    def numbers(self, metrics: "Metrics") -> dict[str, dict[str, float]]:
        """Metric -> kind -> number.

        Raises:
            ConfigError: as `Metrics.query`.
        """
        names = metrics.names(level=self.level)
        if self.name is not None:
            metrics.series(self.name)
            if self.name not in names:
                raise ConfigError(
                    f"{self.name} is a metric of level {level_of(self.name)}; leave out level {self.level}"
                )
            names = (self.name,)
        kinds = _SHOWN if self.kind is None else (self.kind,)
        return {name: {kind: metrics.query(name, kind, q=self.q, last=self.last) for kind in kinds} for name in names}


class Metrics:
    """The metrics of one run, as they were when they were read. `penstock.read_metrics` makes it.

    Args:
        run: name of the run, for messages.
        reports: of the run, in the order written.
    """

    def __init__(self, run: str, reports: Sequence[Report]) -> None:
        self._run = run
        found: dict[str, list[tuple[int, int, float, float]]] = {}
        for report in reports:
            for name, value in report.values.items():
                if np.isfinite(value):
                    found.setdefault(name, []).append((report.update, report.steps, report.time_s, value))
        self._series = {name: _series(lines) for name, lines in found.items()}

    def names(self, *, level: str | None = None) -> tuple[str, ...]:
        """The names of the metrics that have a value, sorted.

        Args:
            level: ``framework``, ``algorithm`` or ``task``: only the metrics of this level. ``None``: all.

        Raises:
            ConfigError: there is no such level.
        """
        if level is not None and level not in LEVELS:
            raise ConfigError(f"level is {level!r}; wanted one of {', '.join(LEVELS)}{nearest(level, LEVELS)}")
        return tuple(sorted(name for name in self._series if level is None or level_of(name) == level))

    def series(self, name: str) -> Series:
        """A metric over the whole run.

        Args:
            name: of the metric, such as ``loss/policy``.

        Returns:
            Arrays ``[n]``, one element for each line that has the metric: ``updates``, ``steps``, ``seconds``,
            ``values``.

        Raises:
            ConfigError: the run has no such metric.
        """
        if name not in self._series:
            hint = nearest(name, self._series) or f"; penstock metrics {self._run} lists them"
            raise ConfigError(f"run {self._run} has no metric {name!r}{hint}")
        return self._series[name]

    def query(self, name: str, kind: str = "mean", *, q: float | None = None, last: int | None = None) -> float:
        """One number for many lines of a metric. Each line weighs the same.

        Args:
            name: of the metric.
            kind: ``mean``, ``sum``, ``min``, ``max``, ``last``, or ``quantile``.
            q: only for ``quantile``, from 0 to 1: the share of the lines whose value is at most the result; 0.5 gives
                the median. Between two lines the result is interpolated.
            last: only this many of the latest lines with the metric; ``None``: all.

        Returns:
            The number, in the unit of the metric.

        Raises:
            ConfigError: the run has no such metric, there is no such kind, or ``q`` or ``last`` cannot be used.
        """
        values = self.series(name).values
        if kind not in (kinds := (*KINDS, QUANTILE)):
            raise ConfigError(f"kind is {kind!r}; wanted one of {', '.join(kinds)}{nearest(kind, kinds)}")
        if last is not None:
            values = values[-count_of(last, "last") :]
        if kind == QUANTILE:
            if q is None or not 0 <= q <= 1:
                raise ConfigError(f"q of a quantile is {q}; wanted a number from 0 to 1, such as 0.5 for the median")
            return quantile(values, q)
        if q is not None:
            raise ConfigError(f"q is for the kind quantile; leave it out for {kind}")
        return KINDS[kind](values)


def read_metrics(run: Path | str) -> Metrics:
    """Read the metrics of a run, which may still be training.

    Args:
        run: the run folder.

    Returns:
        The metrics that the run has reported so far.

    Raises:
        RunFolderError: it is no run folder, its metrics cannot be read, or nothing was reported yet.

    Example:
        metrics = penstock.read_metrics("logs/pendulum")
        print(metrics.names(), metrics.query("loss/policy", "mean", last=100))
    """
    folder = RunFolder.open(run)
    try:
        reports = read_reports(folder.path)
    except FileNotFoundError:
        reports = []
    except OSError as error:
        raise RunFolderError(f"cannot read {folder.metrics_path}: {error.strerror or error}") from error
    if not reports:
        raise RunFolderError(f"run {folder.path} has not reported anything yet")
    return Metrics(folder.name, reports)


def as_table(metrics: Metrics, question: Question) -> str:
    """The numbers that were asked for, a line for each metric.

    Raises:
        ConfigError: as `Question.numbers`.
    """
    numbers = question.numbers(metrics)
    kinds = list(next(iter(numbers.values()), {}))
    lines = [("metric", "level", "lines", *kinds)]
    for name, found in numbers.items():
        count = _lines(metrics, name, question)
        lines.append((name, level_of(name) or "", f"{count:,}", *(f"{found[kind]:,.6g}" for kind in kinds)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            part.ljust(width) if column < 2 else part.rjust(width)
            for column, (part, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def as_json(metrics: Metrics, question: Question) -> str:
    """The same as one JSON object: metric -> level, number of lines, and each number by its kind.

    Raises:
        ConfigError: as `Question.numbers`.
    """
    numbers = question.numbers(metrics)
    return json.dumps(
        {
            name: {"level": level_of(name), "lines": _lines(metrics, name, question), **found}
            for name, found in numbers.items()
        }
    )


def _lines(metrics: Metrics, name: str, question: Question) -> int:
    """How many lines the numbers of a metric stand for."""
    count = len(metrics.series(name).values)
    return count if question.last is None else min(count, question.last)


def _series(lines: Sequence[tuple[int, int, float, float]]) -> Series:
    updates, steps, seconds, values = zip(*lines, strict=True)
    return Series(
        np.array(updates, np.int64),
        np.array(steps, np.int64),
        np.array(seconds, np.float64),
        np.array(values, np.float64),
    )
