"""Advantages and value targets of one rollout. Wraps the native kernel; imports no torch."""

from collections.abc import Mapping

import numpy as np

from penstock.kernels.returns import Correction, gae
from penstock.types import Array

__all__ = ["Correction", "advantages"]


def advantages(
    rollout: Mapping[str, Array], gamma: float, gae_lambda: float, correction: Correction | None = None
) -> tuple[Array, Array]:
    """Generalised advantage estimates and value targets of one slot: two float32 ``[T, B]``.

    ``delta_t = r_t + gamma V(s_t+1) - V(s_t)``, ``A_t = delta_t + gamma lambda A_t+1``, target ``A_t + V(s_t)``.
    A terminated row bootstraps from 0, a truncated row from its episode's last observation. Both end the sum.

    Sources that reset in the same step list truncated rows in the side area, with ``final_value``. Other sources write
    the last observation into the next row. If the side area is empty, the kind of source makes no difference: either no
    row is truncated, or the source is of the second kind.

    With a ``correction`` both are V-trace's: see `penstock.kernels.returns.gae`.

    Source: Schulman et al. 2016, equations 11 and 16, https://arxiv.org/abs/1506.02438; time limits: Pardo et al.
    2018, https://arxiv.org/abs/1712.00378.
    """
    value: Array = rollout["value"]
    steps, lanes = value.shape[0] - 1, value.shape[1]
    advantage = np.empty((steps, lanes), np.float32)
    target = np.empty((steps, lanes), np.float32)
    count = int(rollout["final_count"])
    gae(
        reward=rollout["reward"][:steps],
        value=value,
        terminated=rollout["terminated"][:steps],
        truncated=rollout["truncated"][:steps],
        valid=rollout["valid"][:steps],
        final_count=count,
        final_t=rollout["final_t"],
        final_lane=rollout["final_lane"],
        final_value=rollout["final_value"],
        same_step=count > 0,
        gamma=gamma,
        gae_lambda=gae_lambda,
        advantage=advantage,
        target=target,
        correction=correction,
    )
    return advantage, target
