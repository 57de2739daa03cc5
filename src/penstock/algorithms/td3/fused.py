"""TD3 as native gradient steps: the mathematics of ``learn.py`` in ``kernels``, for MLPs on the CPU.

Imports no torch. Does not run images, branches and layer norm: those run ``learn.py``.
"""

from functools import partial

from penstock.algorithm import FusedReplay, FusedReplayUpdate
from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.fused import learned_layers, rates, supports
from penstock.algorithms.optimizer.fused import native_optimizer
from penstock.algorithms.td3.spec import TD3Config, policy_graph
from penstock.kernels.replay_update import DeterministicActorCritic, NoiseKeys, deterministic_actor_critic
from penstock.policies import PolicyGraph
from penstock.seeding import phase_seed
from penstock.types import Spaces

__all__ = ["build", "supports"]


def build(spaces: Spaces, config: TD3Config, algorithm: str = "td3") -> FusedReplay:
    """TD3 on ``spaces`` without torch. Check with `supports` first that the native update can train the networks."""
    graph = policy_graph(spaces, config, algorithm)
    return FusedReplay(partial(update, graph, config))


def update(graph: PolicyGraph, config: TD3Config, seed: int, first_row: int) -> FusedReplayUpdate:
    """The native gradient steps of one learner."""
    layers = learned_layers(graph, critic_network(graph, config), config.critics)
    settings = DeterministicActorCritic(
        config.policy_delay, config.smoothing, config.smoothing_clip, config.tau, native_optimizer(config)
    )
    noise = NoiseKeys([phase_seed(seed, 0, 0)], first_row)
    return deterministic_actor_critic(layers, settings, rates(config, config.lr, config.critic_lr), noise)
