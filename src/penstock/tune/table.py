"""The table of results that ``penstock tune`` prints. Imports no Ray."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.sources import shown
from penstock.saved_runs.checkpoints import checkpoint_path, list_checkpoints

if TYPE_CHECKING:  # it imports Ray
    from penstock.tune.tuning import Trial

__all__ = ["as_table", "short", "some_has_learned"]

_ERROR = 200
"""Most characters of why a trial failed."""


def as_table(trials: "Sequence[Trial]", samples: int) -> str:
    """A line for each trial, best first, and what to type for the best one.

    Args:
        trials: those that Ray has taken up.
        samples: how many were asked for.
    """
    names = list(trials[0].settings) if trials else []
    head = ["evaluation", "return", "steps", *names, "run"]
    rows = [[*_numbers(trial), *(short(trial.settings[name]) for name in names), _run(trial)] for trial in trials]
    # The last column stands apart: why a trial failed may be long, and pushes nothing aside there.
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in (head, *rows)), strict=True)]
    lines = ["  ".join([*map(str.rjust, row[:-1], widths), row[-1]]).rstrip() for row in (head, *rows)]
    if left := samples - len(trials):
        lines.append(f"{left} more {'trial has' if left == 1 else 'trials have'} not begun")
    best = next((trial.run_folder for trial in trials if trial.error is None and _has_updates(trial.run_folder)), None)
    return "\n".join(lines) + ("" if best is None else f"\nbest: {best}")


def some_has_learned(trials: "Sequence[Trial]") -> bool:
    """Whether a trial that did not fail has learned. One that ended on another machine may have its run there."""
    return any(
        trial.error is None and (trial.evaluation is not None or _has_updates(trial.run_folder)) for trial in trials
    )


def _numbers(trial: "Trial") -> tuple[str, str, str]:
    if trial.error is not None:
        return "failed", "", f"{trial.steps:,}"
    if not trial.begun:
        return "not begun", "", ""
    without = "none" if trial.played else "stopped"
    evaluation = without if trial.evaluation is None else f"{trial.evaluation:,.1f}"
    mean_return = f"{trial.mean_return:,.1f}" if math.isfinite(trial.mean_return) else "none"
    return evaluation, mean_return, f"{trial.steps:,}"


def _has_updates(run: Path | None) -> bool:
    """Whether there is something to evaluate and to resume. Some runs write a checkpoint before the first update."""
    return run is not None and any(path != checkpoint_path(run, 0) for path in list_checkpoints(run))


def short(value: object) -> str:
    """The value of a setting, in a few characters."""
    return f"{value:.3g}" if isinstance(value, float) else shown(value)


def _run(trial: "Trial") -> str:
    where = "" if trial.run_folder is None else f"{trial.run_folder.parent.name}/{trial.run_folder.name}"
    if trial.error is None:
        return f"{where} ({trial.not_evaluated})" if trial.not_evaluated else where
    return trial.error[:_ERROR] + ("" if trial.output is None else f" ({trial.output})")
