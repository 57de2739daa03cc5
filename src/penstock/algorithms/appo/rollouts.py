"""Advantages, their weights and value targets of APPO, from whole rollouts and what the proximal policy says of them.

Pure functions on NumPy arrays, for all backends of the update. Imports no torch, runs no network.
"""

from collections.abc import Mapping

import numpy as np

from penstock.algorithms.appo.spec import APPOConfig
from penstock.ops.returns import Correction, advantages
from penstock.types import Array, Arrays

__all__ = ["corrected"]

LEAST = 1e-30
"""Rows with a smaller weight count nothing. Their weighed advantages may have become 0, and 0 / 0 is no number."""
FAR = 69.0
"""Ratios are to no less than ``exp(-FAR)`` of mu, 1e-30. Ratios to less could overflow as the policy moves. Such a row
has a weight of 0, and 0 times infinity is no number."""


def corrected(config: APPOConfig, rollout: Mapping[str, Array], log_prob: Array, value: Array) -> Arrays:
    """V-trace's advantages and value targets of one slot, and the proximal log-probabilities: ``[T, B]`` each.

    V-trace multiplies an advantage by the row's weight ``rho``. Here both are fields of their own, ``advantage`` and
    ``importance``, because advantages are normalised before they are weighed. If they were weighed first, a row of
    weight 0 would get minus the mean of all advantages. The proximal policy would never choose the action of such a
    row, so its gradient would be the largest of all.

    Args:
        config: the bounds and discounts.
        rollout: arrays of the slot, ``[T + 1, B, ...]``.
        log_prob: of the actions under the proximal policy, ``[T, B]``.
        value: of that policy's critic in the units of the rewards, ``[T + 1, B]``.
    """
    if config.clip_reward:
        rollout = {**rollout, "reward": rollout["reward"].clip(-1.0, 1.0)}
    correction = Correction(log_prob - rollout["log_prob"][:-1], config.rho_bar, config.c_bar)
    weighed, target = advantages({**rollout, "value": value}, config.gamma, config.gae_lambda, correction)
    log_weight = np.minimum(correction.log_ratio, np.float32(np.log(config.rho_bar)))
    importance = np.where(rollout["valid"][:-1], np.exp(log_weight), np.float32(0.0))
    # A row without a transition may hold any number, also none.
    proximal = np.fmax(log_prob, rollout["log_prob"][:-1] - np.float32(FAR))
    advantage = np.divide(weighed, importance, out=np.zeros_like(weighed), where=importance > LEAST)
    return {"advantage": advantage, "importance": importance, "target": target, "proximal_log_prob": proximal}
