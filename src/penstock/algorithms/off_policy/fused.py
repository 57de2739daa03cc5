"""What the native updates of algorithms with a table share: networks in the kernels' form, and learning rates.

Imports no torch. Knows no loss.
"""

from collections.abc import Callable, Sequence

from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.spec import ContinuousConfig, ReplayConfig
from penstock.algorithms.optimizer.fused import steps_natively
from penstock.kernels.replay_update import LearnedLayers
from penstock.policies import Network, PolicyGraph
from penstock.policies.native import layers_of, layout_of, supports_learning

__all__ = ["learned_layers", "rates", "supports"]


def supports(graph: PolicyGraph, config: ContinuousConfig) -> bool:
    """True if the native update can train an actor, and critics of observation and action, with ``config``."""
    if config.precision != "float32" or config.imitation or not steps_natively(config):
        return False
    return supports_learning(graph, critic_network(graph, config))


def learned_layers(graph: PolicyGraph, critic: Network, critics: int) -> LearnedLayers:
    """An actor and its critics in the form that the kernels take."""
    layout = layout_of(graph)
    return LearnedLayers(
        layout.fields, layout.encoding, layers_of(graph.actor), layers_of(critic), critics, layout.head.size
    )


def rates(config: ReplayConfig, *lr: float) -> Callable[[float], Sequence[float]]:
    """``(progress) -> learning rates``, from those at the start of the run."""
    if config.lr_schedule == "linear":
        return lambda progress: [rate * (1.0 - progress) for rate in lr]
    return lambda _progress: lr
