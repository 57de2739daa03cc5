"""Generalised advantage estimation over one rollout. Runs no network: the rollout holds all values.

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

    ``bootstrap[t]`` depends on how row t ends:

    - the episode goes on: ``value[t + 1]``;
    - terminated: 0;
    - truncated: the value of the episode's last observation. That is ``final_value`` for sources that reset in the same
      step, and ``value[t + 1]`` for sources that reset in the next step.

    Rows that are not valid get advantage 0 and cut the chain.

    Args:
        reward: ``[T, B]`` float32.
        value: ``[T + 1, B]`` float32; row T is the bootstrap row.
        terminated: ``[T, B]`` bool.
        truncated: ``[T, B]`` bool.
        valid: ``[T, B]`` bool.
        final_count: number of filled entries in the side area.
        final_t: ``[F]`` int64, row of each final value.
        final_lane: ``[F]`` int64, lane of each final value.
        final_value: ``[F]`` float32, value of the last observation.
        same_step: whether the source resets in the same step. If not, the side area is not read.
        gamma: discount.
        gae_lambda: 0 is one-step TD, 1 is Monte Carlo with a baseline.
        advantage: ``[T, B]`` float32, written.
        target: ``[T, B]`` float32, written.

    Raises:
        ValueError: shapes do not agree, or a truncated row of a same-step source has no final value.
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
