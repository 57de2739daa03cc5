"""Settings of evaluations, and of an end before the last timestep. Plays no episode."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["EvaluationConfig"]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(SettingsGroup):
    """When a policy is evaluated and by how many episodes, and which returns end a run early."""

    title: ClassVar[str] = "Evaluation, early end"

    target_return: float | None = setting(None, "stop once the last 100 training episodes average this return")
    eval_interval: int = setting(
        0,
        "updates between evaluations during the run; 0: only at its end. The checkpoint of the highest evaluation is "
        "kept as the best",
        min=0,
    )
    eval_episodes: int = setting(100, "greedy episodes of each evaluation; 0: none at the end of the run", min=0)
    eval_seconds: float = setting(
        60.0,
        "seconds after which the evaluation at a run's end begins no new episode; the first 5 always begin, and every "
        "begun episode is played to its end. `penstock eval` has no such limit",
        min=1,
    )
    early_stop: int = setting(
        0,
        "stop after this many evaluations without improvement; 0: never. In lock step (--sync_mode blocking) learning "
        "waits for each of these evaluations, so that a seed always stops at the same update",
        min=0,
    )
