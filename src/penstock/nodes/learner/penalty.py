"""The weight of the penalty on the divergence, adapted after each batch. Computes no gradient and commits nothing.

    kl > 1.5 target:  weight <- 2 weight        kl < target / 1.5:  weight <- weight / 2

Source: Schulman et al. 2017, section 4, https://arxiv.org/abs/1707.06347. There the divergence is measured after the
update; here it is the mean over the minibatches of the batch's last epoch, as for ``target_kl``. For learners that do
not wait for each other, it is the mean over all gradients since the last batch that ended. The weight stays within
``LEAST`` and ``MOST``, so that it comes back within a few batches, and never becomes 0 or infinite.
"""

from collections.abc import Mapping

import numpy as np

from penstock.algorithm import KL, KL_COEF, Schedule
from penstock.updates.contract import Holder

__all__ = ["LEAST", "MOST", "adapt", "adapted"]

LEAST, MOST = 1e-4, 1e4


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
