"""Generalised advantage estimation over one rollout. Runs no network: every value it needs is in the rollout.

Source: Schulman et al. 2015, https://arxiv.org/abs/1506.02438, equations 11 to 16.
"""

from penstock.kernels import _native
from penstock.types import Array

__all__ = ["gae"]


def gae(
    *,
    reward: Array,
    value: Array,
    terminated: Array,
    truncated: Array,
    valid: Array,
    final_count: int,
    final_t: Array,
    final_lane: Array,
    final_value: Array,
    same_step: bool,
    gamma: float,
    gae_lambda: float,
    advantage: Array,
    target: Array,
) -> None:
    """Write advantages and value targets of a rollout.

        delta[t]     = reward[t] + gamma * bootstrap[t] - value[t]
        advantage[t] = delta[t] + gamma * gae_lambda * advantage[t + 1]     (cut where an episode ended at t)
        target[t]    = advantage[t] + value[t]

    ``bootstrap[t]`` is ``value[t + 1]``; 0 where the episode terminated; where it was only truncated, the value of its
    last observation: ``final_value`` for sources that reset in the same step, ``value[t + 1]`` for those that reset in
    the next. Rows that are not valid get advantage 0 and cut the chain.

    Args:
        reward: ``[T, B]`` float32.
        value: ``[T + 1, B]`` float32; row T is the bootstrap row.
        terminated: ``[T, B]`` bool.
        truncated: ``[T, B]`` bool.
        valid: ``[T, B]`` bool.
        final_count: how many entries of the side area are filled.
        final_t: ``[F]`` int64, row of each final value.
        final_lane: ``[F]`` int64.
        final_value: ``[F]`` float32.
        same_step: whether the source resets in the same step; otherwise the side area is not read.
        gamma: discount.
        gae_lambda: 0 is one-step TD, 1 is Monte Carlo with a baseline.
        advantage: ``[T, B]`` float32, written.
        target: ``[T, B]`` float32, written.

    Raises:
        ValueError: shapes that do not fit, or a truncated row of a same-step source without a final value.
    """
    _native.gae(
        reward,
        value,
        terminated,
        truncated,
        valid,
        final_count,
        final_t,
        final_lane,
        final_value,
        same_step,
        gamma,
        gae_lambda,
        advantage,
        target,
    )
