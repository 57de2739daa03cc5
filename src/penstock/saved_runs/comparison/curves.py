"""The return of one run as it grew, over steps and over seconds, with the episodes behind each value."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from penstock.metrics.report import EPISODES, EVAL_RETURN, FINAL, RETURN, RETURN_WINDOW, Report
from penstock.saved_runs.comparison.sides import ComparedRun
from penstock.types import Array

__all__ = ["Axis", "Episodes", "Point", "ReturnCurve", "evaluation_curve", "final_evaluation", "training_curve"]

Axis: TypeAlias = Literal["steps", "seconds"]
Episodes: TypeAlias = Array
"""Returns of single episodes, float64 ``[n]``; empty if the run's log does not hold them."""


class Point(NamedTuple):
    """One mean return, and the episodes that it is the mean of."""

    value: float
    episodes: Episodes


class ReturnCurve(NamedTuple):
    """Mean returns of one run in the order of their reports."""

    steps: Array
    """Float64 ``[n]``."""
    seconds: Array
    """Float64 ``[n]``."""
    points: Sequence[Point]

    def at(self, axis: Axis, position: float) -> Point | None:
        """The last value up to ``position``; ``None`` if there is none by then."""
        positions: Array = getattr(self, axis)
        index = int(np.searchsorted(positions, position, side="right")) - 1
        return None if index < 0 else self.points[index]


def training_curve(run: ComparedRun) -> ReturnCurve:
    """The mean return of the latest training episodes, exploration included."""
    ended: list[float] = []
    found = []
    for report in run.reports:
        if EVAL_RETURN in report.values:
            continue
        ended += report.returns
        if _has(report, RETURN):
            window = ended[-RETURN_WINDOW:]
            # Reports can be lost, and older logs hold no returns. A mean must not get the interval of other episodes.
            complete = len(window) == min(report.values.get(EPISODES, np.inf), RETURN_WINDOW)
            found.append((report, Point(report.values[RETURN], np.array(window if complete else [], np.float64))))
    return _curve(found)


def evaluation_curve(run: ComparedRun) -> ReturnCurve:
    """The mean return of each evaluation during the run: greedy episodes."""
    return _evaluations(run, lambda report: FINAL not in report.values)


def final_evaluation(run: ComparedRun) -> Point | None:
    """The evaluation at the run's end; ``None`` if the run was interrupted or is still going on.

    A run that was resumed has one of the end before, too. That one does not count.
    """
    points = _evaluations(run, lambda report: FINAL in report.values and report.update >= run.last.update).points
    return points[-1] if points else None


def _evaluations(run: ComparedRun, chosen: Callable[[Report], bool]) -> ReturnCurve:
    reports = (report for report in run.reports if _has(report, EVAL_RETURN) and chosen(report))
    return _curve(
        [(report, Point(report.values[EVAL_RETURN], np.array(report.returns, np.float64))) for report in reports]
    )


def _curve(found: Sequence[tuple[Report, Point]]) -> ReturnCurve:
    # An evaluation may end after a later one was asked for, so its report comes in no fixed order.
    found = sorted(found, key=lambda one: (one[0].steps, one[0].time_s))
    places = np.array([(report.steps, report.time_s) for report, _ in found], np.float64).reshape(-1, 2)
    return ReturnCurve(places[:, 0], places[:, 1], [point for _, point in found])


def _has(report: Report, name: str) -> bool:
    return bool(np.isfinite(report.values.get(name, np.nan)))
