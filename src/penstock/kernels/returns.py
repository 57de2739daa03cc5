"""Generalised advantage estimation over one rollout, and its correction by V-trace. Runs no network.

Sources: Schulman et al. 2015, https://arxiv.org/abs/1506.02438, equations 11 to 16; Espeholt et al. 2018,
https://arxiv.org/abs/1802.01561, equation 1 and remark 2.
"""

from typing import NamedTuple

from penstock.kernels import _native
from penstock.types import Array

__all__ = ["Correction", "gae"]


class Correction(NamedTuple):
    """How far the policy has moved since it acted, and how much of that counts."""

    log_ratio: Array
    """``log pi(a | s) - log mu(a | s)``, ``[T, B]`` float32: pi is the current policy, mu the one that acted."""
    rho_bar: float
    """Largest weight of a row's own error."""
    c_bar: float
    """Largest weight of later errors."""


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
    correction: Correction | None = None,
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

    With a ``correction``, V-trace's weights count: ``rho = min(rho_bar, pi / mu)``, ``c = min(c_bar, pi / mu)``. Then
    ``x[t]`` is what the target of row t adds to its value:

        x[t]         = rho[t] * delta[t] + gamma * gae_lambda * c[t] * x[t + 1]
        advantage[t] = rho[t] * (delta[t] + gamma * gae_lambda * x[t + 1])
        target[t]    = x[t] + value[t]

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
        correction: for rows of an older policy, with the values of the current one. ``None``: all weights are 1.

    Raises:
        ValueError: shapes do not agree, or a truncated row of a same-step source has no final value.
    """
    log_ratio, rho_bar, c_bar = correction or (None, 1.0, 1.0)
    _native.advantages(
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
        log_ratio,
        rho_bar,
        c_bar,
    )
