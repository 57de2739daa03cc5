"""Hyper-parameters and state that algorithms share which learn from a table, as plain data. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from penstock.algorithm import AlgorithmSpec, ReplaySchedule, TableSpec
from penstock.config.fields import BY_LANES, BY_NETWORKS, tunable
from penstock.policies import Network, PolicyGraph
from penstock.policies.architecture import ActivationName, Body, mlp
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = [
    "MOST_UPDATES",
    "ContinuousConfig",
    "ReplayConfig",
    "body_of",
    "critic_network",
    "initial_arrays",
    "off_policy_spec",
    "stacked",
]

GRADIENT_STEPS = ArraySpec("gradient_steps", (), "int64")
"""Counted by the updater: it keys the noise of phases, and says which are due."""


MOST_UPDATES = 1_000
"""Gradient steps for each row, at most: with more, hours go into the first rows before the next are collected."""


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """What every algorithm here takes that learns from a table."""

    num_steps: int = tunable(
        8,
        "steps of each lane between two updates of the acting policy: fewer keep it fresh, more cost less (1 to 64)",
        min=1,
        fixed=BY_LANES,
    )
    updates_per_step: float = tunable(
        1.0,
        "gradient steps for each row collected: more learns faster from it and overfits to it (0.05 to 4)",
        min=1e-4,
        max=MOST_UPDATES,
    )
    reuse: float = tunable(
        1.0,
        "non_blocking: while rows are slow to come, steps go on up to so many times updates_per_step: more uses idle "
        "learners and overfits to old rows (1 to 8)",
        min=1,
    )
    mini_batch_size: int = tunable(256, "rows of one gradient step: fewer are noisier and cheaper (32 to 1024)", min=1)
    min_rows: int = tunable(
        1_000, "rows in the table before the first gradient step: more is a broader start (500 to 50,000)", min=1
    )
    capacity: int = tunable(
        1_000_000, "rows the table keeps: more remembers longer and takes memory (10,000 to 1,000,000)", min=1
    )
    gamma: float = tunable(
        0.99, "discount: rewards count about 1 / (1 - gamma) steps ahead (0.9 to 0.999)", min=0, max=1
    )
    lr: float = tunable(
        3e-4, "step size of the policy: too large and it collapses, too small and it creeps (3e-5 to 1e-3)", min=0
    )
    """SAC: as in Haarnoja et al. 2018. TD3: Fujimoto et al. 2018 have 1e-3, with layers of 400 and 300 and minibatches
    of 100; the code that they published later has 3e-4, with the layers and minibatches that are the defaults here."""
    lr_schedule: Literal["constant", "linear"] = tunable(
        "constant", "linear lets every step size fall to 0 at the end of the run", choices=("constant", "linear")
    )
    adam_eps: float = tunable(1e-8, "Adam's epsilon: larger damps steps where gradients are tiny (1e-8 to 1e-4)", min=0)
    hidden_sizes: tuple[int, ...] = tunable(
        (256, 256),
        "widths of an mlp's hidden layers: wider fits more and costs more (64,64 to 400,300)",
        min=1,
        fixed=BY_NETWORKS,
    )
    activation: ActivationName = tunable(  # noqa: RUF009
        "relu",
        "between the layers of an mlp: relu is the cheapest, gelu smoother",
        choices=get_args(ActivationName),
        fixed=BY_NETWORKS,
    )


@dataclass(frozen=True, kw_only=True)
class ContinuousConfig(ReplayConfig):
    """What an actor with critics of state and action takes; until ``min_rows`` its actions are drawn uniformly."""

    critic_lr: float = tunable(
        3e-4, "step size of the critics: too large and values diverge, too small and they lag (1e-4 to 1e-3)", min=0
    )
    tau: float = tunable(
        0.005,
        "how far targets move to the networks at a step: more is faster and less steady (0.001 to 0.05)",
        min=0,
        max=1,
    )


def off_policy_spec(
    spaces: Spaces,
    config: ReplayConfig,
    graph: PolicyGraph,
    *,
    learned: Sequence[ArraySpec],
    followed: Sequence[str],
    others: Sequence[ArraySpec] = (),
) -> AlgorithmSpec:
    """The spec of an algorithm that draws rows uniformly, a step each, and begins with uniform actions.

    Args:
        spaces: of one lane.
        config: when and how much is learned.
        graph: the policy.
        learned: the vectors that gradients step.
        followed: the names of those that have a target, ``target.<name>``.
        others: further arrays of the state.
    """
    fields = tuple(name for name, _ in spaces.obs)
    optimizer = tuple(part for vector in learned for part in _adam_arrays(vector))
    return AlgorithmSpec(
        topology="off_policy",
        row=(),
        policy=graph,
        noise=graph.head.noise,
        state=(
            *learned,
            *(replace(part, name=f"target.{part.name}") for part in learned if part.name in followed),
            *others,
            GRADIENT_STEPS,
            *optimizer,
            ArraySpec("progress", (), "float64"),
        ),
        targets=(),
        minibatch=(*fields, *(f"next.{name}" for name in fields), "action", "reward", "discount"),
        schedule=ReplaySchedule(config.mini_batch_size, config.updates_per_step, config.min_rows, config.reuse),
        table=TableSpec(config.capacity, config.gamma),
        warmup=config.min_rows,
        optimizer=tuple(part.name for part in optimizer),
    )


def _adam_arrays(vector: ArraySpec) -> tuple[ArraySpec, ...]:
    """Both moments and the count of steps."""
    moments = (replace(vector, name=f"adam_{moment}.{vector.name}") for moment in "mv")
    return (*moments, ArraySpec(f"adam_step.{vector.name}", (), "int64"))


def body_of(config: ReplayConfig) -> Body:
    """The perceptron that ``config`` asks for."""
    return Body("mlp", config.hidden_sizes, config.activation)


def critic_network(graph: PolicyGraph, config: ReplayConfig, outputs: int = 1) -> Network:
    """A perceptron of what the actor sees, and of an action beside it."""
    inputs = graph.features + graph.head.noise.shape[0]
    return Network("critic", mlp(inputs, config.hidden_sizes, outputs, config.activation, 1.0))


def stacked(name: str, network: Network, count: int) -> ArraySpec:
    """``count`` networks of one architecture, one after the other in one vector: one step of an optimizer for all."""
    return ArraySpec(name, (count * network.num_parameters,), "float32")


def initial_arrays(spec: AlgorithmSpec, networks: Mapping[str, Sequence[Network]], seed: int) -> Arrays:
    """The state to begin with: networks drawn from ``seed``, a target equal to its network, everything else 0.

    Args:
        spec: says which arrays there are.
        networks: name of a vector -> the networks that lie in it.
        seed: of the run.
    """
    state = {part.name: np.zeros(part.shape, part.dtype) for part in spec.state}
    number = 0
    for name, parts in networks.items():
        vectors = []
        for part in parts:
            vectors.append(part.initial(np.random.default_rng([seed, number])))
            number += 1
        state[name] = np.concatenate(vectors)
        if f"target.{name}" in state:
            state[f"target.{name}"] = state[name].copy()
    return state
