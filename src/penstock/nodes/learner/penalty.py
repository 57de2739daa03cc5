"""The weight of the penalty on the divergence, adapted after each batch. Finds no gradient and commits nothing.

    kl > 1.5 target:  weight <- 2 weight        kl < target / 1.5:  weight <- weight / 2

Source: Schulman et al. 2017, section 4, https://arxiv.org/abs/1707.06347. There the divergence is measured after the
update; here it is the mean over the minibatches of the batch's last epoch, as for ``target_kl``. The weight stays
within ``LEAST`` and ``MOST``, so that it comes back within a few batches, and never becomes 0 or infinite.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from penstock.algorithm import Schedule
from penstock.types import Array, Arrays

__all__ = ["LEAST", "MOST", "Holder", "adapt", "adapted"]

KL, KL_COEF = "kl", "kl_coef"
"""The metric, and the array of the state."""
LEAST, MOST = 1e-4, 1e4


class Holder(Protocol):
    """Any updater or applier."""

    def load(self, state: Mapping[str, Array]) -> None:
        """Take some arrays of the state."""
        ...

    def state(self) -> Arrays:
        """The state's named arrays."""
        ...


def adapt(holder: Holder, schedule: Schedule, metrics: Mapping[str, float]) -> None:
    """Adapt the weight in the state at the end of a batch, if the schedule asks for that.

    Args:
        holder: of the state.
        schedule: of the algorithm.
        metrics: of the batch. Without a divergence, as of a batch without rows, the weight stays.
    """
    if schedule.kl_target is None or KL not in metrics:
        return
    weight = adapted(float(holder.state()[KL_COEF]), metrics[KL], schedule.kl_target)
    holder.load({KL_COEF: np.array(weight, np.float32)})


def adapted(weight: float, kl: float, target: float) -> float:
    """The next weight, after a batch that has moved the policy by ``kl``."""
    factor = 2.0 if kl > 1.5 * target else 0.5 if kl < target / 1.5 else 1.0
    return min(max(factor * weight, LEAST), MOST)
