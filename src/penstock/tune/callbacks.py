"""What Ray Tune calls while trials go on: lines for the user, the settings of each trial, and the end by an interrupt.

Starts nothing.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray.tune

from penstock.processes.interrupts import Interrupts
from penstock.tune.output import OUTPUT, failure_in
from penstock.tune.schedulers import METRIC
from penstock.tune.table import short
from penstock.tune.trial import FAILED, up_to_date

__all__ = ["Interrupted", "Settings", "Teller", "reason_of"]


def reason_of(text: str) -> str:
    """Why a trial failed, by the text of Ray's error."""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "it failed")
    # Behind the names of exceptions that Ray and the trial have put before it.
    return last.rpartition(FAILED)[2]


class Interrupted(ray.tune.Stopper):  # type: ignore[misc]
    """Stops all trials in order once the user has asked for it."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __getstate__(self) -> dict[str, Any]:
        # Ray writes it beside the trials, to continue them. Nobody does.
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether to stop this trial."""
        del trial_id, result
        return self._interrupts.count > 0

    def stop_all(self) -> bool:
        """Whether to stop all of them."""
        return self._interrupts.count > 0


class Settings(ray.tune.Callback):  # type: ignore[misc]
    """Notes the settings of each trial, also of those that never begin."""

    def __init__(self) -> None:
        self.given: dict[str, dict[str, Any]] = {}
        """Trial -> its settings."""

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:  # noqa: ANN401
        """Ray has looked after the trials, which are all that there are so far."""
        del iteration, info
        self.given = {str(trial.trial_id): trial.config for trial in trials}


class Teller(ray.tune.Callback):  # type: ignore[misc]
    """Says a line for each trial that has ended."""

    def __init__(self, told: Callable[[str], None], folder: Path) -> None:
        self._told = told
        self._folder = folder

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ANN401
        """A trial has ended, or was stopped."""
        del iteration, trials, info
        last = trial.last_result or {}
        found = up_to_date(last, Path(last["run_folder"]) if last.get("run_folder") else None)
        mean = float(found.get(METRIC, float("-inf")))
        reached = f"return {mean:,.1f}" if math.isfinite(mean) else "no episode has ended"
        if found.get("evaluation") is not None:
            reached = f"evaluation {found['evaluation']:,.1f}, {reached}"
        # Race: 1. A trial is to go on as a copy, with changed settings. 2. It is stopped before its first report. These
        # results are of the settings before.
        settings = _given(last.get("config") or trial.config)
        self._told(f"trial {trial.trial_id}: {reached} after {int(found.get('steps', 0)):,} steps ({settings})")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ANN401
        """A trial has failed."""
        del iteration, trials, info
        output = self._folder / str(trial.trial_id) / OUTPUT
        where = f"; its output: {output}" if output.exists() else ""
        self._told(
            f"trial {trial.trial_id} failed: {failure_in(output) or _noted(trial)} ({_given(trial.config)}){where}"
        )


def _given(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {short(value)}" for name, value in settings.items())


def _noted(trial: Any) -> str:  # noqa: ANN401 - as above
    """Why a trial failed, by the file that Ray writes of it."""
    path = None if trial.error_file is None else Path(trial.error_file)
    return reason_of(path.read_text("utf-8", "replace") if path is not None and path.exists() else "")
