"""SAC as native gradient steps: the mathematics of ``learn.py`` in ``kernels``, for MLPs on the CPU.

Imports no torch. Does not run images, branches and layer norm: those run ``learn.py``.
"""

from functools import partial

from penstock.algorithm import FusedReplay, FusedReplayUpdate
from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.fused import learned_layers, rates, supports
from penstock.algorithms.optimizer.fused import native_optimizer
from penstock.algorithms.sac.spec import EntropyConfig, SACConfig, policy_graph
from penstock.kernels.replay_update import NoiseKeys, SoftActorCritic, soft_actor_critic
from penstock.policies import PolicyGraph, SquashedGaussian
from penstock.seeding import phase_seed
from penstock.types import Spaces

__all__ = ["build", "settings_of", "supports"]


def build(spaces: Spaces, config: SACConfig) -> FusedReplay:
    """SAC on ``spaces`` without torch. Check with `supports` first that the native update can train the networks."""
    graph = policy_graph(spaces, config)
    return FusedReplay(partial(update, graph, config))


def update(graph: PolicyGraph, config: SACConfig, seed: int, first_row: int) -> FusedReplayUpdate:
    """The native gradient steps of one learner."""
    layers = learned_layers(graph, critic_network(graph, config), config.critics)
    noise = NoiseKeys([phase_seed(seed, phase, 0) for phase in range(2)], first_row)
    step_sizes = rates(config, config.lr, config.critic_lr, config.temperature_lr)
    return soft_actor_critic(layers, settings_of(graph, config), step_sizes, noise)


def settings_of(graph: PolicyGraph, config: EntropyConfig) -> SoftActorCritic:
    """The numbers of SAC in the form that the kernels take."""
    head = graph.head
    if not isinstance(head, SquashedGaussian):
        raise TypeError(f"the policy's head is {head}, not a SquashedGaussian")
    entropy = -float(head.size) if config.target_entropy == "auto" else config.target_entropy
    return SoftActorCritic(
        head.log_std_min,
        head.log_std_max,
        config.temperature == "auto",
        entropy,
        config.tau,
        config.policy_delay,
        native_optimizer(config),
    )
