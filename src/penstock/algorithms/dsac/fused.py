"""DSAC as native gradient steps: the mathematics of ``learn.py`` in ``kernels``, for MLPs on the CPU.

Imports no torch. Does not run images, branches and layer norm: those run ``learn.py``.
"""

from functools import partial

from penstock.algorithm import FusedReplay, FusedReplayUpdate
from penstock.algorithms.dsac.spec import DistributionalConfig, DSACConfig, return_network
from penstock.algorithms.off_policy.fused import learned_layers, rates, supports
from penstock.algorithms.sac.fused import settings_of
from penstock.algorithms.sac.spec import policy_graph
from penstock.kernels.replay_update import DistributionalActorCritic, NoiseKeys, distributional_actor_critic
from penstock.policies import PolicyGraph
from penstock.seeding import phase_seed
from penstock.types import Spaces

__all__ = ["build", "supports", "update"]

NOISE = ((0, 0), (1, 0), (0, 1))
"""Phase and place of the noise inputs in ``learn.py``: next action, action, next return."""


def build(spaces: Spaces, config: DSACConfig) -> FusedReplay:
    """DSAC on ``spaces`` without torch. Check with `supports` first that the native update can train the networks."""
    graph = policy_graph(spaces, config, "dsac")
    return FusedReplay(partial(update, graph, config, critics=1, bound=config.bound, refined=False))


def update(
    graph: PolicyGraph,
    config: DistributionalConfig,
    seed: int,
    first_row: int,
    *,
    critics: int,
    bound: float,
    refined: bool,
) -> FusedReplayUpdate:
    """The native gradient steps of one learner. The last arguments are as in `DistributionalActorCritic`."""
    layers = learned_layers(graph, return_network(graph, config), critics)
    settings = DistributionalActorCritic(settings_of(graph, config), bound, refined)
    noise = NoiseKeys([phase_seed(seed, phase, place) for phase, place in NOISE], first_row)
    step_sizes = rates(config, config.lr, config.critic_lr, config.temperature_lr)
    return distributional_actor_critic(layers, settings, step_sizes, noise)
