"""DQN as native gradient steps: the mathematics of ``learn.py`` in ``kernels``, for MLPs on the CPU.

Imports no torch. Does not run images, branches, layer norm and action masks: those run ``learn.py``.
"""

from functools import partial

from penstock.algorithm import FusedReplay, FusedReplayUpdate
from penstock.algorithms.dqn.spec import LEAST_PRIORITY, DQNConfig, QConfig, policy_graph
from penstock.algorithms.off_policy.fused import rates
from penstock.algorithms.optimizer.fused import native_optimizer, steps_natively
from penstock.kernels.replay_update import QLearning, q_learning
from penstock.policies import PolicyGraph
from penstock.policies.native import layout_of, supports_learning
from penstock.types import Spaces

__all__ = ["build", "supports", "update"]


def supports(graph: PolicyGraph, config: QConfig) -> bool:
    """True if the native update can train ``graph`` with ``config``."""
    return config.precision == "float32" and steps_natively(config) and supports_learning(graph)


def build(spaces: Spaces, config: DQNConfig) -> FusedReplay:
    """DQN on ``spaces`` without torch. Check with `supports` first that the native update can train the network."""
    graph = policy_graph(spaces, config, "dqn")
    return FusedReplay(partial(update, graph, config))


def update(graph: PolicyGraph, config: QConfig, seed: int, first_row: int) -> FusedReplayUpdate:
    """The native gradient steps of one learner. They take no noise."""
    del seed, first_row
    layout = layout_of(graph)
    head = layout.head
    settings = QLearning(
        layout.fields,
        layout.encoding,
        layout.actor.layers,
        head.size,
        head.atoms,
        head.low,
        head.high,
        head.duel,
        config.double,
        config.error_clip,
        config.max_grad_norm,
        LEAST_PRIORITY,
        config.target_every,
        native_optimizer(config),
    )
    return q_learning(settings, rates(config, config.lr))
