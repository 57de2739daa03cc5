"""The curves of finished and running trainings, from their logs. Draws nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.errors import RunFolderError
from penstock.metrics.jsonl import read_reports
from penstock.metrics.report import Report
from penstock.saved_runs.run_folder import RunFolder, list_runs
from penstock.types import Array

__all__ = ["Curve", "Run", "curve", "read_runs", "smoothed"]


class Curve(NamedTuple):
    """A metric over environment steps; both ``[n]`` float64. Updates that did not report it are left out."""

    steps: Array
    values: Array


class Run(NamedTuple):
    """A run and all its reports."""

    name: str
    reports: Sequence[Report]


def read_runs(folder: Path) -> list[Run]:
    """The runs in a folder, or the run of this run folder; oldest first. Runs without reports are left out.

    Raises:
        RunFolderError: there is no run with a report.
    """
    if not folder.is_dir():
        raise RunFolderError(f"there is no folder {folder}; penstock train makes one")
    try:
        paths = [RunFolder.open(folder).path]
    except RunFolderError:
        paths = list_runs(folder)
    runs = []
    for path in paths:
        try:
            reports = read_reports(path)
        except OSError:
            continue
        if reports:
            runs.append(Run(path.resolve().name, reports))
    if not runs:
        raise RunFolderError(f"no run in {folder} has reported anything yet")
    return runs


def curve(run: Run, value: Callable[[Report], float | None]) -> Curve:
    """The ``value`` of each report of a run. Reports without it, or with NaN or infinity, are left out."""
    found = [(report.steps, number) for report in run.reports if (number := value(report)) is not None]
    steps, values = np.array(found, np.float64).reshape(-1, 2).T
    finite = np.isfinite(values)
    return Curve(steps[finite], values[finite])


def smoothed(values: Array, share: float) -> Array:
    """A centred moving average over ``share`` of all points; near the ends over fewer points.

    It is centred, because an average of past points only would show every rise too late.
    """
    half = int(len(values) * share / 2)
    if half == 0:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    first, last = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return np.asarray((sums[last] - sums[first]) / (last - first))
