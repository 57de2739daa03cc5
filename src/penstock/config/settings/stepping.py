"""Settings of how environments are stepped, and of what is read from their steps. Does not name the environment."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.fields import BY_NETWORKS
from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["MOST_EPISODE_METRICS", "SteppingConfig"]

MOST_EPISODE_METRICS = 32
"""With longer names than these have, the report of an update would find no room."""


@dataclass(frozen=True, kw_only=True)
class SteppingConfig(SettingsGroup):
    """Which fields and metrics a step brings, who plays the other agents, and what follows a step that fails."""

    title: ClassVar[str] = "Environment: fields, metrics, faults"

    vector_env: bool = setting(
        False, "the environment steps many lanes itself (gymnasium.vector)", fixed="its episodes began this way"
    )
    ignore_obs: tuple[str, ...] | None = setting(
        None,
        "fields of a Dict or Tuple observation to leave out, such as a text; a nested field is named with all its "
        "parents, as a.b",
        form="names of observation fields, separated by commas or with a flag each",
        adds=True,
        fixed=BY_NETWORKS,
    )
    episode_metrics: tuple[str, ...] | None = setting(
        None,
        "numbers in the info of an episode's last step, such as won,laps:max: the mean is reported as episode/won, of "
        "evaluations as eval/episode/won; a kind behind a colon (sum, min, max, or a quantile such as p95) as "
        f"episode/laps:max (docs/environments-metrics.md); at most {MOST_EPISODE_METRICS}",
        pattern=r"\S(.{0,62}\S)?",
        form="names of at most 64 characters, separated by commas or with a flag each",
        adds=True,
    )
    opponents: tuple[str, ...] | None = setting(
        None,
        "pettingzoo: one agent of each environment learns, and frozen policies play the others; self: earlier versions "
        "of this run; random: random moves; RUN or RUN@CHECKPOINT, the path of another run: its policy "
        "(docs/self-play.md); left out: all agents learn",
        pattern=r"\S(.*\S)?",
        form="self, random or paths of run folders, separated by commas or with a flag each",
        adds=True,
    )
    opponent_rule: Literal["uniform", "latest", "hard"] = setting(
        "uniform",
        "which of the --opponents plays in an episode; uniform: each alike; latest: the newest version of this run; "
        "hard: those that are hard to beat more often",
    )
    env_timeout: float = setting(
        60.0, "longest time in seconds of one environment step; an environment that takes longer counts as hung", min=1
    )
    bad_numbers: Literal["stop", "skip"] = setting(
        "stop",
        "for NaN or infinity in observations or rewards; stop: the run ends; skip: the rollout is dropped and counted, "
        "and the lane is reset (non_blocking only)",
    )
