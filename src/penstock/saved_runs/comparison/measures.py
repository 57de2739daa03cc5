"""What is compared: each measure of all sides, and the differences to the first side."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from penstock.config.episode_metrics import episode_metrics
from penstock.errors import RunFolderError
from penstock.metrics.episode_metrics import EPISODE
from penstock.metrics.figures import idle_shares
from penstock.saved_runs.comparison.bootstrap import Estimate, difference, estimate
from penstock.saved_runs.comparison.curves import (
    Axis,
    Point,
    ReturnCurve,
    evaluation_curve,
    final_evaluation,
    training_curve,
)
from penstock.saved_runs.comparison.sides import ComparedRun, Side
from penstock.types import Array

__all__ = ["Band", "Comparison", "Measure", "band", "compare"]

RESAMPLES = 10_000
_BAND_RESAMPLES = 1_000
_BAND_POINTS = 200
_SEED = 0
"""Of each interval's own generator. So an interval does not change with the sides and rows beside it."""
_WORKING = ("env", "policy", "learner")
"""Kinds of node that do the work of a run. The others come after them."""


class Measure(NamedTuple):
    """One measure of every side. ``None`` stands for a side that does not have it."""

    name: str
    """As a key of the JSON: ``return_at_equal_steps``, ``episode/won``, ``idle/env``."""
    at: float | None
    """The step or the second at which it was taken, if it has one."""
    sides: tuple[Estimate | None, ...]
    differences: tuple[Estimate | None, ...]
    """Each side but the first, less the first side."""


class Comparison(NamedTuple):
    """Runs on one task, side by side."""

    sides: tuple[Side, ...]
    returns: Literal["training", "evaluation"]
    """What the returns over steps and seconds are of: the latest training episodes, or evaluations during the run."""
    curves: tuple[tuple[ReturnCurve, ...], ...]
    """Of each run of each side."""
    measures: tuple[Measure, ...]

    def measure(self, name: str) -> Measure:
        """The measure of this name."""
        return next(measure for measure in self.measures if measure.name == name)


class _Sample(NamedTuple):
    """A side's value of one measure, and the numbers whose mean it is: its runs, or the episodes of its only run."""

    value: float
    elements: Array


def compare(sides: tuple[Side, ...]) -> Comparison:
    """Compare the sides. The same runs give the same intervals: the bootstrap has a fixed seed.

    - At equal steps: each run's last mean return up to the step that all runs have reached.
    - At equal wall time: the same up to the second of training that all runs have reached.
    - Intervals are over the runs of a side. A side of one run has intervals of its returns only, over the episodes of
      each mean; other seeds may differ by more.

    Raises:
        RunFolderError: no episode of a run has ended.
    """
    runs = [run for side in sides for run in side.runs]
    evaluated = all(evaluation_curve(run).points for run in runs)
    curve_of = evaluation_curve if evaluated else training_curve
    curves = tuple(tuple(curve_of(run) for run in side.runs) for side in sides)
    for run, curve in zip(runs, (curve for of_side in curves for curve in of_side), strict=True):
        if not curve.points:
            raise RunFolderError(f"no episode of run {run.path} has ended yet")
    return Comparison(sides, "evaluation" if evaluated else "training", curves, _measures(sides, curves))


def _measures(sides: tuple[Side, ...], curves: tuple[tuple[ReturnCurve, ...], ...]) -> tuple[Measure, ...]:
    flat = [curve for of_side in curves for curve in of_side]
    steps, seconds = (min(float(getattr(curve, axis)[-1]) for curve in flat) for axis in ("steps", "seconds"))
    finals = [_of_points([final_evaluation(run) for run in side.runs]) for side in sides]
    return (
        _measure("return_at_equal_steps", _returns(curves, "steps", steps), at=steps),
        _measure("return_at_equal_wall_time", _returns(curves, "seconds", seconds), at=seconds),
        *(_measure("final_evaluation", finals) for _ in range(any(finals))),
        *(
            _measure(name, _of_runs(sides, partial(_last_value, name=name, steps=steps)), at=steps)
            for name in _episode_metrics(sides)
        ),
        _measure("steps_per_second", _of_runs(sides, _rate)),
        *(_measure(f"idle/{kind}", _of_runs(sides, partial(_idle_of, kind=kind))) for kind in _kinds(sides)),
    )


def _measure(name: str, samples: Sequence[_Sample | None], at: float | None = None) -> Measure:
    first, *others = samples
    estimates = [one and estimate(one.value, one.elements, RESAMPLES, np.random.default_rng(_SEED)) for one in samples]
    differences = [
        difference(other.value - first.value, other.elements, first.elements, RESAMPLES, np.random.default_rng(_SEED))
        if first is not None and other is not None
        else None
        for other in others
    ]
    return Measure(name, at, tuple(estimates), tuple(differences))


def _returns(curves: Sequence[Sequence[ReturnCurve]], axis: Axis, position: float) -> list[_Sample | None]:
    return [_of_points([curve.at(axis, position) for curve in of_side]) for of_side in curves]


def _of_points(points: Sequence[Point | None]) -> _Sample | None:
    """The sample of a side with these returns of its runs; ``None`` if one is missing."""
    found = [point for point in points if point is not None]
    if len(found) < len(points):
        return None
    values = np.array([point.value for point in found])
    return _Sample(float(values.mean()), values if len(values) > 1 else found[0].episodes)


def _of_runs(sides: Sequence[Side], value: Callable[[ComparedRun], float | None]) -> list[_Sample | None]:
    """The sample of each side for a measure that a run has once."""
    samples: list[_Sample | None] = []
    for side in sides:
        found = [number for run in side.runs if (number := value(run)) is not None]
        whole = len(found) == len(side.runs)
        samples.append(_Sample(float(np.mean(found)), np.array(found)) if whole else None)
    return samples


def _rate(run: ComparedRun) -> float | None:
    """Steps per second of training, from the run's beginning to its last report."""
    last = run.last
    return last.steps / last.time_s if last.time_s > 0 else None


def _episode_metrics(sides: Sequence[Side]) -> list[str]:
    """The episode metrics of all runs, as their reports name them."""
    runs = [run for side in sides for run in side.runs]
    named = (f"{EPISODE}{one.label}" for run in runs for one in episode_metrics(run.settings.episode_metrics))
    return list(dict.fromkeys(named))


def _last_value(run: ComparedRun, name: str, steps: float) -> float | None:
    """The last value of an episode metric of a run up to this step."""
    found = [report.values[name] for report in run.reports if report.steps <= steps and name in report.values]
    return found[-1] if found else None


def _idle(run: ComparedRun) -> dict[str, float]:
    """Idle share of each kind of node over the whole run: each report counts by the seconds since the one before.

    The clock of a clone goes on from that of its origin. How much of its first report is its own is not known, so that
    one is left out.
    """
    seconds: dict[str, float] = {}
    idle: dict[str, float] = {}
    before = math.inf if run.parts and run.parts[0].begin else 0.0
    for report in run.reports:
        shares = idle_shares(report.values)
        if not shares:
            continue
        passed, before = max(0.0, report.time_s - before), report.time_s
        for kind, share in shares.items():
            seconds[kind] = seconds.get(kind, 0.0) + passed
            idle[kind] = idle.get(kind, 0.0) + passed * share
    return {kind: idle[kind] / total for kind, total in seconds.items() if total > 0}


def _idle_of(run: ComparedRun, kind: str) -> float | None:
    return _idle(run).get(kind)


def _kinds(sides: Sequence[Side]) -> list[str]:
    """The kinds of node of all runs, those first that do the work."""
    found = {kind for side in sides for run in side.runs for kind in _idle(run)}
    return [kind for kind in _WORKING if kind in found] + sorted(found.difference(_WORKING))


class Band(NamedTuple):
    """The mean return of a side over steps or seconds, with its interval; each ``[n]`` float64."""

    positions: Array
    values: Array
    low: Array
    high: Array


def band(curves: Sequence[ReturnCurve], axis: Axis) -> Band:
    """The band of one side, at most 200 points. It ends where its first run ends.

    Where there is no interval, ``low`` and ``high`` equal the value.
    """
    reached: list[Array] = [getattr(curve, axis) for curve in curves]
    begin, end = max(positions[0] for positions in reached), min(positions[-1] for positions in reached)
    every = np.unique(np.concatenate(reached))
    within = every[(every >= begin) & (every <= end)]
    positions = within[np.unique(np.linspace(0, len(within) - 1, min(len(within), _BAND_POINTS)).round().astype(int))]
    generator = np.random.default_rng(_SEED)
    samples = [_of_points([curve.at(axis, float(position)) for curve in curves]) for position in positions]
    found = [estimate(one.value, one.elements, _BAND_RESAMPLES, generator) for one in samples if one is not None]
    values = np.array([one.value for one in found])
    low = np.array([one.value if one.low is None else one.low for one in found])
    high = np.array([one.value if one.high is None else one.high for one in found])
    return Band(positions, values, low, high)
