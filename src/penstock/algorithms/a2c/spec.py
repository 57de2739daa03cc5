"""A2C as plain data: its hyper-parameters and the arrays of its state. Imports no torch; networks are PPO's."""

from dataclasses import dataclass

from penstock.algorithm import AlgorithmSpec, Schedule
from penstock.algorithms.ppo.spec import ActorCriticConfig, actor_critic_spec, initial_arrays, policy_graph
from penstock.config.fields import BY_LANES, tunable
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = ["A2CConfig", "init_state", "spec"]


@dataclass(frozen=True, kw_only=True)
class A2CConfig(ActorCriticConfig):
    """Hyper-parameters of A2C. Batches are short and many: each is used once."""

    num_steps: int = tunable(
        8, "steps of each lane in one batch: more lowers bias, fewer updates more (5 to 32)", min=1, fixed=BY_LANES
    )
    mini_batch_size: int = tunable(
        64, "rows of one gradient step: num_envs times num_steps makes one step of each batch (32 to 1024)", min=1
    )
    lr: float = tunable(
        7e-4, "step size: too large and the policy collapses, too small and it creeps (1e-4 to 3e-3)", min=0
    )
    gae_lambda: float = tunable(
        1.0, "1 is the return over num_steps, less trusts the critic more (bias) (0.9 to 1)", min=0, max=1
    )
    normalize_advantage: bool = tunable(False, "shift and scale the advantages of each minibatch (off or on)")
    rmsprop_eps: float = tunable(
        1e-5, "RMSprop's epsilon, inside the root: larger damps steps where gradients are tiny (1e-5 to 0.1)", min=0
    )


def spec(spaces: Spaces, config: A2CConfig) -> AlgorithmSpec:
    """What the house needs to know to run A2C on ``spaces``.

    Raises:
        SpaceError: a space that no model here serves.
    """
    graph = policy_graph(spaces, config)
    optimizer = tuple(
        ArraySpec(f"rmsprop_v.{network.name}", network.spec.shape, "float32") for network in graph.networks
    )
    return actor_critic_spec(spaces, graph, optimizer, Schedule(1, config.mini_batch_size))


def init_state(spaces: Spaces, config: A2CConfig, seed: int) -> Arrays:
    """The state to begin with: networks drawn from ``seed``, variances 1, everything else 0."""
    return initial_arrays(spec(spaces, config), seed)
