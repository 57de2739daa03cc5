"""Advantages, value targets and running statistics of an on-policy actor-critic, from whole rollouts.

Pure functions on NumPy arrays, for all backends of the update. Imports no torch, knows no loss.
"""

from collections.abc import Mapping

from penstock.algorithms.ppo.spec import ActorCriticConfig
from penstock.ops.returns import advantages
from penstock.ops.statistics import obs_statistics, value_statistics
from penstock.policies import PolicyGraph
from penstock.types import Array, Arrays

__all__ = ["statistics", "targets"]


def targets(config: ActorCriticConfig, state: Mapping[str, Array], rollout: Mapping[str, Array]) -> Arrays:
    """Advantages and value targets ``[T, B]`` of one slot, from the values that the rollout holds.

    Source: Schulman et al. 2017, equations 11 and 12, https://arxiv.org/abs/1707.06347.
    """
    del state  # The values are in the rollout. They are those of the parameters that acted.
    if config.clip_reward:
        rollout = {**rollout, "reward": rollout["reward"].clip(-1.0, 1.0)}
    advantage, target = advantages(rollout, config.gamma, config.gae_lambda)
    return {"advantage": advantage, "target": target}


def statistics(graph: PolicyGraph, state: Mapping[str, Array], rollout: Mapping[str, Array]) -> Arrays:
    """Running moments of observations and value targets, with this slot's valid rows merged lane by lane."""
    return obs_statistics(graph, state, rollout) | value_statistics(graph, state, rollout)
