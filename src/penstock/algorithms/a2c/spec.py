"""A2C as plain data: its hyper-parameters and the arrays of its state. Imports no torch; networks are PPO's."""

from dataclasses import dataclass
from typing import ClassVar, get_args

from penstock.algorithm import AlgorithmSpec, Schedule
from penstock.algorithms.optimizer.spec import OPTIMIZER_TEXT, OptimizerName
from penstock.algorithms.ppo.spec import (
    ActorCriticConfig,
    actor_critic_spec,
    initial_arrays,
    minibatch_units,
    policy_graph,
)
from penstock.config.fields import BY_LANES, BY_OPTIMIZER, tunable
from penstock.types import Arrays, Spaces

__all__ = ["MASKS", "A2CConfig", "init_state", "spec"]

MASKS = True


@dataclass(frozen=True, kw_only=True)
class A2CConfig(ActorCriticConfig):
    """Hyper-parameters of A2C. It learns from many short batches, and from each only once."""

    recurrent_minibatches: ClassVar[int] = 4
    num_steps: int = tunable(
        8,
        "steps of each lane in one batch; more: less bias, but rarer updates (usual: 5 to 32)",
        min=1,
        fixed=BY_LANES,
    )
    mini_batch_size: int = tunable(
        64,
        "rows of one gradient step; num_envs times num_steps: one step for each batch; with a memory "
        "max(1, mini_batch_size // num_steps) whole lanes, and by default at most a quarter of all lanes "
        "(usual: 32 to 1024)",
        min=1,
    )
    lr: float = tunable(
        7e-4,
        "learning rate of the optimizer; too large: the policy collapses; too small: learning is slow "
        "(usual: 1e-4 to 3e-3)",
        min=0,
    )
    gae_lambda: float = tunable(
        1.0,
        "how advantages are estimated; 1: from the returns over num_steps; less: more from the critic, with more bias "
        "(usual: 0.9 to 1)",
        min=0,
        max=1,
    )
    normalize_advantage: bool = tunable(
        False, "shift and scale the advantages of each minibatch to mean 0 and standard deviation 1"
    )
    optimizer: OptimizerName = tunable(  # noqa: RUF009
        "rmsprop", OPTIMIZER_TEXT, choices=get_args(OptimizerName), fixed=BY_OPTIMIZER
    )


def spec(spaces: Spaces, config: A2CConfig) -> AlgorithmSpec:
    """What penstock needs to know to run A2C on ``spaces``.

    Raises:
        SpaceError: penstock has no model for a space.
    """
    graph = policy_graph(spaces, config)
    return actor_critic_spec(spaces, graph, config, Schedule(1, minibatch_units(graph, config)))


def init_state(spaces: Spaces, config: A2CConfig, seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, variances 1, everything else 0."""
    return initial_arrays(spec(spaces, config), seed)
