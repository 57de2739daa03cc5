"""DQN as plain data: its hyper-parameters, its network and the arrays of its state. Imports no torch."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from penstock.algorithm import AlgorithmSpec, Priorities, TableSpec
from penstock.algorithms.off_policy.spec import (
    MOST_UPDATES,
    ReplayConfig,
    body_of,
    initial_arrays,
    off_policy_spec,
    with_statistics,
)
from penstock.config.fields import BY_NETWORKS, BY_PRIORITIES, BY_PRIORITY_ALPHA, tunable
from penstock.errors import ConfigError
from penstock.policies import PolicyGraph
from penstock.policies.architecture import q_network
from penstock.policies.exploration import Explore, Falling
from penstock.policies.network_settings import check_network_settings
from penstock.types import Arrays, Spaces

__all__ = [
    "ACTIONS",
    "LEAST_PRIORITY",
    "MASKS",
    "DQNConfig",
    "QConfig",
    "ValueConfig",
    "init_state",
    "initial_q_arrays",
    "policy_graph",
    "q_spec",
    "spec",
]

ACTIONS = ("discrete",)
MASKS = True

LEAST_PRIORITY = 0.01
"""Added to the error of each row, so that a row with error 0 may be sampled again.

Schaul et al. 2016 use a small number. With 1e-6 values diverged. The row with the lowest priority has the largest
importance: if its value turns out to be wrong, this row outweighs thousands of others.
"""


@dataclass(frozen=True, kw_only=True)
class ValueConfig(ReplayConfig):
    """Hyper-parameters that all algorithms for values of discrete actions share.

    The defaults are not those of Mnih et al. 2015. Those are for millions of steps of Atari; the preset ``atari-dqn``
    has them. The defaults were found on CartPole-v1. On two other tasks they did better than the paper's:
    docs/algorithms/dqn.md has the figures.
    """

    updates_per_step: float = tunable(
        0.5,
        "gradient steps for each collected row; more: learns more from each row, but overfits to it (usual: 0.05 to 4)",
        min=1e-4,
        max=MOST_UPDATES,
    )
    mini_batch_size: int = tunable(
        128, "rows of one gradient step; fewer: noisier, but cheaper steps (usual: 32 to 512)", min=1
    )
    capacity: int = tunable(
        100_000,
        "rows that the replay table keeps; more: remembers for longer, but takes more memory "
        "(usual: 10,000 to 1,000,000)",
        min=1,
    )
    lr: float = tunable(
        1e-3,
        "learning rate of the optimizer; too large: values diverge; too small: learning is slow (usual: 5e-5 to 1e-3)",
        min=0,
    )
    lr_schedule: Literal["constant", "linear"] = tunable(
        "linear",
        "how all learning rates change; linear: they fall to 0 at the end of the run",
        choices=("constant", "linear"),
    )
    max_grad_norm: float = tunable(
        1_000.0,
        "largest norm of a gradient; longer gradients are scaled down to it; less: learns too little from rare "
        "failures (usual: 10 to 1000)",
        min=1e-4,
    )
    error_clip: float = tunable(
        100.0,
        "largest error of a value that counts in full; less: learns too little from rare failures, but 1 suits rewards "
        "within -1 .. 1 (usual: 1 to 100)",
        min=1e-4,
    )
    target_every: int = tunable(
        100,
        "gradient steps between two copies of the network to its target; more: learns more steadily, but more slowly "
        "(usual: 100 to 10,000)",
        min=1,
    )
    hidden_sizes: tuple[int, ...] = tunable(
        (128, 128),
        "widths of an mlp's hidden layers; wider: learns more, but takes more time (usual: 64,64 to 512,512)",
        min=1,
        fixed=BY_NETWORKS,
    )
    double: bool = tunable(
        True, "the network chooses the next action and the target gives its value; this avoids values that are too high"
    )
    """On by default: van Hasselt et al. 2016 found it better on Atari, with everything else as in Mnih et al. 2015."""
    dueling: bool = tunable(
        False, "compute an action's value as the value of the state plus the action's advantage", fixed=BY_NETWORKS
    )
    n_step: int = tunable(
        1,
        "rewards that are summed before the target's value counts; more: learns faster, but exploring lowers the "
        "values (usual: 1 to 5)",
        min=1,
    )
    prioritised: bool = tunable(
        False,
        "sample rows with a large error of their value more often; False: sample all rows equally often",
        fixed=BY_PRIORITIES,
    )
    priority_alpha: float = tunable(
        0.6,
        "with prioritised: power of the error; 0: sample all rows equally often; 1: in proportion to their errors "
        "(usual: 0.4 to 0.8)",
        min=0,
        max=1,
        fixed=BY_PRIORITY_ALPHA,
    )
    priority_beta: float = tunable(
        0.4,
        "with prioritised: share of the bias from sampling that is corrected at the start of the run; it grows to 1 at "
        "the end (usual: 0.4 to 1)",
        min=0,
        max=1,
    )
    clip_reward: bool = tunable(
        False, "learn from rewards cut to -1 .. 1, as is usual on Atari; reported returns are not cut"
    )


@dataclass(frozen=True, kw_only=True)
class QConfig(ValueConfig):
    """Hyper-parameters of algorithms that learn action values, or the distribution of returns, from single rows."""

    atoms: int = tunable(
        1,
        "above 1: learn the distribution of returns over this many values (C51 has 51); 1: learn only their mean",
        min=1,
        fixed=BY_NETWORKS,
    )
    value_min: float = tunable(
        0.0, "with atoms above 1: smallest return of the distribution (-10 on Atari)", fixed=BY_NETWORKS
    )
    value_max: float = tunable(
        100.0, "with atoms above 1: largest return of the distribution (10 on Atari)", fixed=BY_NETWORKS
    )


@dataclass(frozen=True, kw_only=True)
class DQNConfig(QConfig):
    """Hyper-parameters of DQN."""

    epsilon_first: float = tunable(
        1.0, "share of random actions at the start of the run (usual: 0.5 to 1)", min=0, max=1
    )
    epsilon_last: float = tunable(
        0.05,
        "share of random actions at the end of the run; more: explores more, but plays worse (usual: 0.01 to 0.1)",
        min=0,
        max=1,
    )
    epsilon_fraction: float = tunable(
        0.2,
        "part of the run in which the share of random actions falls from epsilon_first to epsilon_last; longer: "
        "explores more (usual: 0.05 to 0.5)",
        min=0,
        max=1,
    )


def spec(spaces: Spaces, config: DQNConfig) -> AlgorithmSpec:
    """What penstock needs to know to run DQN on ``spaces``.

    Raises:
        SpaceError: the actions are not a Discrete, or penstock has no model for the observations.
        ConfigError: atoms without a range, or a range without atoms.
    """
    falling = Falling(config.epsilon_first, config.epsilon_last, config.epsilon_fraction)
    return q_spec(spaces, config, policy_graph(spaces, config, "dqn"), falling)


def q_spec(spaces: Spaces, config: QConfig, graph: PolicyGraph, explore: Explore) -> AlgorithmSpec:
    """The spec of Q-learning that explores by ``explore``."""
    found = off_policy_spec(spaces, config, graph, learned=(graph.actor.spec,), targeted=("actor",), losses=("",))
    priorities = Priorities(config.priority_alpha, config.priority_beta) if config.prioritised else None
    limit = 1.0 if config.clip_reward else math.inf
    return replace(
        found,
        table=TableSpec(config.capacity, config.gamma, config.n_step, priorities, limit),
        minibatch=(*found.minibatch, "importance") if config.prioritised else found.minibatch,
        explore=explore,
        warmup=0,
    )


def policy_graph(spaces: Spaces, config: QConfig, algorithm: str) -> PolicyGraph:
    """The network of action values of ``config`` for ``spaces``.

    Raises:
        SpaceError: the actions are not a Discrete, or penstock has no model for the observations. The text names
            ``algorithm``.
        ConfigError: atoms without a range, or a range without atoms.
    """
    if config.atoms > 1 and config.value_min >= config.value_max:
        raise ConfigError(
            f"--atoms {config.atoms} lie between --value_min and --value_max: {config.value_min:g} is not below "
            f"{config.value_max:g}"
        )
    for name in ("value_min", "value_max"):
        if config.atoms == 1 and getattr(config, name) != getattr(QConfig, name):
            raise ConfigError(f"--{name} is the end of a range of atoms, and --atoms 1 has none; give --atoms 51")
    graph = q_network(
        spaces,
        body_of(config),
        algorithm,
        dueling=config.dueling,
        atoms=config.atoms,
        low=config.value_min,
        high=config.value_max,
    )
    check_network_settings(graph, config)
    return with_statistics(graph, spaces, config)


def init_state(spaces: Spaces, config: DQNConfig, seed: int) -> Arrays:
    """The first state: a random network that depends on ``seed``, an equal target, everything else 0."""
    return initial_q_arrays(spec(spaces, config), seed)


def initial_q_arrays(of: AlgorithmSpec, seed: int) -> Arrays:
    """The first state of any spec with one network, as ``init_state`` describes it."""
    return initial_arrays(of, {"actor": [of.policy.actor]}, seed)
