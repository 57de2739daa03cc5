"""DQN as plain data: its hyper-parameters, its network, the arrays of its state. Imports no torch."""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from penstock.algorithm import AlgorithmSpec, Priorities, TableSpec
from penstock.algorithms.off_policy.spec import MOST_UPDATES, ReplayConfig, initial_arrays, off_policy_spec
from penstock.config.fields import BY_NETWORKS, BY_PRIORITIES, tunable
from penstock.errors import ConfigError
from penstock.policies import PolicyGraph
from penstock.policies.architecture import Body, ModelName, q_network
from penstock.policies.exploration import Explore, Falling
from penstock.types import Arrays, Spaces

__all__ = ["ACTIONS", "LEAST_PRIORITY", "DQNConfig", "QConfig", "init_state", "policy_graph", "q_spec", "spec"]

ACTIONS = ("discrete",)

LEAST_PRIORITY = 0.01
"""Added to every error, so that a row without one may be drawn again. Schaul et al. 2016 want it small; but importance
is measured by the rarest row, and one of 1e-6 that turns out wrong would outweigh thousands: values diverged so."""


@dataclass(frozen=True, kw_only=True)
class QConfig(ReplayConfig):
    """What every algorithm here takes that learns the values of discrete actions.

    The defaults are not those of Mnih et al. 2015, which are for millions of steps of Atari and have a preset,
    ``atari-dqn``. They were found on CartPole-v1, and did better than the paper's on tasks that they were not found on:
    docs/algorithms/dqn.md holds the figures.
    """

    updates_per_step: float = tunable(
        0.5,
        "gradient steps for each row collected: more learns faster from it and overfits to it (0.05 to 4)",
        min=1e-4,
        max=MOST_UPDATES,
    )
    mini_batch_size: int = tunable(128, "rows of one gradient step: fewer are noisier and cheaper (32 to 512)", min=1)
    capacity: int = tunable(
        100_000, "rows the table keeps: more remembers longer and takes memory (10,000 to 1,000,000)", min=1
    )
    lr: float = tunable(1e-3, "step size: too large and values diverge, too small and they creep (5e-5 to 1e-3)", min=0)
    lr_schedule: Literal["constant", "linear"] = tunable(
        "linear", "linear lets every step size fall to 0 at the end of the run", choices=("constant", "linear")
    )
    max_grad_norm: float = tunable(
        1_000.0, "longer gradients are scaled down to this norm: little forgets rare failures (10 to 1000)", min=1e-4
    )
    error_clip: float = tunable(
        100.0,
        "how wrong a value may be and still pull harder: less forgets rare failures; 1 suits small rewards (1 to 100)",
        min=1e-4,
    )
    target_every: int = tunable(
        100, "gradient steps between copies to the target: more is steadier and slower (100 to 10,000)", min=1
    )
    hidden_sizes: tuple[int, ...] = tunable(
        (128, 128),
        "widths of an mlp's hidden layers: wider fits more and costs more (64,64 to 512,512)",
        min=1,
        fixed=BY_NETWORKS,
    )
    double: bool = tunable(
        True, "the network chooses the action that its target judges: less overestimation (on or off)"
    )
    """On, since van Hasselt et al. 2016 found it better on Atari with everything else as in Mnih et al. 2015."""
    dueling: bool = tunable(
        False, "the last layer adds a state's value and its actions' advantages (off or on)", fixed=BY_NETWORKS
    )
    n_step: int = tunable(
        1, "rewards summed before a target's value: more is faster and counts what exploring cost (1 to 5)", min=1
    )
    prioritised: bool = tunable(
        False,
        "draw rows by how wrong their value was, instead of all alike (off or on)",
        fixed=BY_PRIORITIES,
    )
    priority_alpha: float = tunable(
        0.6, "of prioritised drawing: 0 draws all alike, 1 by the error itself (0.4 to 0.8)", min=0, max=1
    )
    priority_beta: float = tunable(
        0.4,
        "of prioritised drawing: how much of its bias is undone at first; all of it at the end (0.4 to 1)",
        min=0,
        max=1,
    )
    atoms: int = tunable(
        1,
        "above 1: learn how returns are distributed over so many values, C51 (51); 1 learns their mean",
        min=1,
        fixed=BY_NETWORKS,
    )
    value_min: float = tunable(
        0.0, "with atoms: the smallest return that is told apart (-10 on Atari)", fixed=BY_NETWORKS
    )
    value_max: float = tunable(
        100.0, "with atoms: the largest return that is told apart (10 on Atari)", fixed=BY_NETWORKS
    )
    clip_reward: bool = tunable(
        False, "learn from rewards cut to -1 .. 1, as is usual on Atari; returns are reported whole (off or on)"
    )
    model: ModelName = tunable(  # noqa: RUF009
        "auto", "auto: nature_cnn for one uint8 image, else mlp", choices=get_args(ModelName), fixed=BY_NETWORKS
    )


@dataclass(frozen=True, kw_only=True)
class DQNConfig(QConfig):
    """Hyper-parameters of DQN."""

    epsilon_first: float = tunable(1.0, "share of random actions at the beginning (0.5 to 1)", min=0, max=1)
    epsilon_last: float = tunable(
        0.05, "share of random actions in the end: more keeps exploring and plays worse (0.01 to 0.1)", min=0, max=1
    )
    epsilon_fraction: float = tunable(
        0.2, "part of the run over which that share falls: longer explores more broadly (0.05 to 0.5)", min=0, max=1
    )


def spec(spaces: Spaces, config: DQNConfig) -> AlgorithmSpec:
    """What the house needs to know to run DQN on ``spaces``.

    Raises:
        SpaceError: actions that are not a Discrete, or observations that no model here serves.
        ConfigError: atoms without a range, or a range without atoms.
    """
    falling = Falling(config.epsilon_first, config.epsilon_last, config.epsilon_fraction)
    return q_spec(spaces, config, policy_graph(spaces, config, "dqn"), falling)


def q_spec(spaces: Spaces, config: QConfig, graph: PolicyGraph, explore: Explore) -> AlgorithmSpec:
    """The spec of Q-learning that explores so."""
    found = off_policy_spec(spaces, config, graph, learned=(graph.actor.spec,), followed=("actor",))
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
    """The network of action values that ``config`` asks for on ``spaces``.

    Raises:
        SpaceError: actions that are not a Discrete, or observations that no model here serves; the text names
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
    body = Body(config.model, config.hidden_sizes, config.activation)
    return q_network(
        spaces, body, algorithm, dueling=config.dueling, atoms=config.atoms, low=config.value_min, high=config.value_max
    )


def init_state(spaces: Spaces, config: DQNConfig, seed: int) -> Arrays:
    """The state to begin with: the network drawn from ``seed``, its target equal to it, everything else 0."""
    found = spec(spaces, config)
    return initial_arrays(found, {"actor": [found.policy.actor]}, seed)
