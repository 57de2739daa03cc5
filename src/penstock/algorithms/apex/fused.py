"""Ape-X as native gradient steps: those of DQN. Imports no torch."""

from functools import partial

from penstock.algorithm import FusedReplay
from penstock.algorithms.apex.spec import ApexConfig
from penstock.algorithms.dqn.fused import supports, update
from penstock.algorithms.dqn.spec import policy_graph
from penstock.types import Spaces

__all__ = ["build", "supports"]


def build(spaces: Spaces, config: ApexConfig) -> FusedReplay:
    """Ape-X on ``spaces`` without torch. Check with `supports` first that the native update can train the network."""
    graph = policy_graph(spaces, config, "apex")
    return FusedReplay(partial(update, graph, config))
