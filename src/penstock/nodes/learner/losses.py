"""The metrics of an update: their names in a report, and the check that no loss is infinite or NaN, with its text."""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.errors import BadDataError
from penstock.metrics.report import LAG, LAG_MAX, LOSS
from penstock.policies import PolicyGraph

__all__ = ["lag_values", "loss_values", "nothing_kept", "refuse_bad_losses"]

SCALE = "loss_scale"
"""Ends the name of the metric of a scale of float16."""


def nothing_kept(policy: PolicyGraph) -> str:
    """How an error about NaN or infinity ends: what was kept, and what may help."""
    own = policy.actor.own
    look = ""
    if own is not None:
        which = f"{own.reference}{' or its critic' if own.critic else ''}"
        look = f"see whether --model {which} divides by 0 or takes a root or logarithm of 0; "
    return f"nothing of it was kept; {look}a smaller --lr, or rewards of a smaller scale, may help"


def loss_values(means: Mapping[str, float]) -> dict[str, float]:
    """The metrics of an update, by their names in a report."""
    return {f"{LOSS}{_short(name)}": mean for name, mean in means.items()}


def lag_values(of: str, lags: Sequence[int]) -> dict[str, float]:
    """The mean and the largest of these lags, by their names in a report: ``<of>/lag`` and ``<of>/lag_max``.

    Nothing if there are none.
    """
    return {f"{of}{LAG}": float(np.mean(lags)), f"{of}{LAG_MAX}": float(max(lags))} if lags else {}


def refuse_bad_losses(metrics: Mapping[str, float], update: int, policy: PolicyGraph) -> None:
    """Check that all losses and the norm of the gradient are finite, and that no scale of float16 has become 0.

    Raises:
        BadDataError: one is infinite or NaN; or a scale is 0, and its network will not take a step any more.
    """
    for name, value in metrics.items():
        if name.endswith(SCALE) and value == 0.0:
            raise BadDataError(
                f"update {update}: {name} is 0, because every gradient of that loss overflows in float16; "
                f"{nothing_kept(policy)}, and so may --precision bfloat16"
            )
        if (name.endswith("_loss") or name == "grad_norm") and not np.isfinite(value):
            raise BadDataError(f"update {update}: {name} is {value}; {nothing_kept(policy)}")


def _short(name: str) -> str:
    return f"{name.removesuffix(SCALE)}scale" if name.endswith(SCALE) else name.removesuffix("_loss")
