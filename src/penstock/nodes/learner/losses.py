"""The metrics of an update: their names in a report, and the check that no loss is infinite or NaN."""

from collections.abc import Mapping

import numpy as np

from penstock.errors import BadDataError
from penstock.nodes.learner.keeper import NOTHING_KEPT

__all__ = ["loss_values", "refuse_bad_losses"]


def loss_values(means: Mapping[str, float]) -> dict[str, float]:
    """The metrics of an update, by their names in a report."""
    return {f"loss/{name.removesuffix('_loss')}": mean for name, mean in means.items()}


def refuse_bad_losses(metrics: Mapping[str, float], update: int) -> None:
    """Check that all losses and the norm of the gradient are finite.

    Raises:
        BadDataError: one is infinite or NaN.
    """
    for name, value in metrics.items():
        if (name.endswith("_loss") or name == "grad_norm") and not np.isfinite(value):
            raise BadDataError(f"update {update}: {name} is {value}; {NOTHING_KEPT}")
