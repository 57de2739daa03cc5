"""Advantages and value targets of APPO, from whole rollouts and what the current policy says of them.

Pure functions on NumPy arrays, for all backends of the update. Imports no torch, runs no network.
"""

from collections.abc import Mapping

from penstock.algorithms.appo.spec import APPOConfig
from penstock.ops.returns import Correction, advantages
from penstock.types import Array, Arrays

__all__ = ["corrected"]


def corrected(config: APPOConfig, rollout: Mapping[str, Array], log_prob: Array, value: Array) -> Arrays:
    """V-trace's advantages and value targets of one slot, and the proximal log-probabilities: ``[T, B]`` each.

    Args:
        config: the bounds and discounts.
        rollout: arrays of the slot, ``[T + 1, B, ...]``.
        log_prob: of the actions under the current policy, ``[T, B]``.
        value: of the current critic in the units of the rewards, ``[T + 1, B]``.
    """
    if config.clip_reward:
        rollout = {**rollout, "reward": rollout["reward"].clip(-1.0, 1.0)}
    correction = Correction(log_prob - rollout["log_prob"][:-1], config.rho_bar, config.c_bar)
    advantage, target = advantages({**rollout, "value": value}, config.gamma, config.gae_lambda, correction)
    return {"advantage": advantage, "target": target, "proximal_log_prob": log_prob}
