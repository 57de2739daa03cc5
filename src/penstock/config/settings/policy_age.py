"""Settings of a run whose learner does not wait: how old a policy may be."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["PolicyAgeConfig"]


@dataclass(frozen=True, kw_only=True)
class PolicyAgeConfig(SettingsGroup):
    """How old a policy may be when it acts, and when experience or gradients are too old to learn from."""

    title: ClassVar[str] = "Age of the policy that acts"

    max_policy_lag: int = setting(
        10,
        "non_blocking: drop experience from a policy older than this many updates; with several learners: drop "
        "gradients from parameters older than this many gradient steps",
        min=0,
    )
    renew_every: int = setting(
        64,
        "non_blocking: a newer policy takes over after so many steps, also in the middle of a rollout (--num_steps); "
        "fewer: experience is newer, and parameters are copied more often",
        min=1,
    )
