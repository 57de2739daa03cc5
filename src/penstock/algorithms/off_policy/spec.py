"""Hyper-parameters and state arrays that all algorithms with a table share, as plain data. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from penstock.algorithm import DEMONSTRATED, AlgorithmSpec, ReplaySchedule, Sequences, TableSpec
from penstock.algorithms.optimizer.spec import (
    STEPS,
    OptimizerConfig,
    check_optimizer,
    counts_steps,
    first_scales,
    optimizer_arrays,
    scale_arrays,
)
from penstock.config.fields import BY_LANES, BY_NETWORKS, tunable
from penstock.policies import Network, PolicyGraph
from penstock.policies.architecture import PRECISION_TEXT, ActivationName, Body, PrecisionName, normalising
from penstock.policies.initial import InitName
from penstock.policies.trunk import INIT_TEXT, MODEL_FORM, MODELS
from penstock.types import Arrays, ArraySpec, Spaces

__all__ = [
    "LOSSES",
    "MOST_UPDATES",
    "ContinuousConfig",
    "ReplayConfig",
    "SequenceConfig",
    "body_of",
    "initial_arrays",
    "off_policy_spec",
    "over_sequences",
    "stacked",
    "with_statistics",
]

LOSSES = ("critic", "actor")
"""The phases of an actor with critics. Each has a loss of its own."""
GRADIENT_STEPS = ArraySpec("gradient_steps", (), "int64")
"""The updater counts it. The count is a key of the phases' noise, and decides which phases are due."""
MOST_UPDATES = 1_000
"""Largest number of gradient steps for each row. With more, a run would learn from its first rows for hours."""


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(OptimizerConfig):
    """Hyper-parameters that all algorithms with a table share."""

    num_steps: int = tunable(
        8,
        "steps of each lane in a rollout, after which a newer policy acts; without lock step one also acts after each "
        "--renew_every steps; fewer: the policy that acts is newer; more: less overhead (usual: 1 to 64)",
        min=1,
        fixed=BY_LANES,
    )
    updates_per_step: float = tunable(
        1.0,
        "gradient steps for each collected row; more: learns more from each row, but overfits to it (usual: 0.05 to 4)",
        min=1e-4,
        max=MOST_UPDATES,
    )
    reuse: float = tunable(
        1.0,
        "non_blocking: while new rows are slow to come, learners take up to this many times updates_per_step; more: "
        "they are idle less, but overfit to old rows (usual: 1 to 8)",
        min=1,
    )
    reset_every: int = tunable(
        0,
        "gradient steps after which all networks and their optimizers begin anew, from the same table; forgets what "
        "was overfitted where updates_per_step is high, but the policy is bad for a while; 0: never (usual: 200,000)",
        min=0,
    )
    mini_batch_size: int = tunable(
        256, "rows of one gradient step; fewer: noisier, but cheaper steps (usual: 32 to 1024)", min=1
    )
    min_rows: int = tunable(
        1_000,
        "rows in the replay table before the first gradient step; more: learning starts later, from more varied rows "
        "(usual: 500 to 50,000)",
        min=1,
    )
    capacity: int = tunable(
        1_000_000,
        "rows that the replay table keeps; more: remembers for longer, but takes more memory "
        "(usual: 10,000 to 1,000,000)",
        min=1,
    )
    gamma: float = tunable(
        0.99,
        "discount of later rewards; rewards count about 1 / (1 - gamma) steps ahead (usual: 0.9 to 0.999)",
        min=0,
        max=1,
    )
    lr: float = tunable(
        3e-4,
        "learning rate of the policy; too large: the policy collapses; too small: learning is slow "
        "(usual: 3e-5 to 1e-3)",
        min=0,
    )
    """As SAC has it in Haarnoja et al. 2018."""
    lr_schedule: Literal["constant", "linear"] = tunable(
        "constant",
        "how all learning rates change; linear: they fall to 0 at the end of the run",
        choices=("constant", "linear"),
    )
    normalize_obs: bool = tunable(
        False,
        "shift and scale observations by the running mean and standard deviation of all that were collected; learns "
        "sooner where their sizes differ",
        fixed=BY_NETWORKS,
    )
    model: str = tunable("auto", MODELS, pattern=r"(?s).+", form=MODEL_FORM, fixed=BY_NETWORKS)
    layer_norm: bool = tunable(
        False, "normalise the outputs of each hidden linear layer; learning is steadier, but slower", fixed=BY_NETWORKS
    )
    init: InitName = tunable(  # noqa: RUF009
        "orthogonal", INIT_TEXT, choices=get_args(InitName), fixed=BY_NETWORKS
    )
    precision: PrecisionName = tunable(  # noqa: RUF009
        "float32", PRECISION_TEXT, choices=get_args(PrecisionName)
    )
    hidden_sizes: tuple[int, ...] = tunable(
        (256, 256),
        "widths of an mlp's hidden layers; wider: learns more, but takes more time (usual: 64,64 to 400,300)",
        min=1,
        fixed=BY_NETWORKS,
    )
    activation: ActivationName = tunable(  # noqa: RUF009
        "relu",
        "function between the layers of an mlp; relu takes the least time, gelu is smoother",
        choices=get_args(ActivationName),
        fixed=BY_NETWORKS,
    )

    def more_fields(self) -> tuple[str, ...]:
        """Fields of a minibatch that only these settings need."""
        return ()


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """Hyper-parameters of a policy with memory, and of the sequences that it learns from."""

    memory_size: int = tunable(
        64,
        "width of the memory of lstm and gru; wider: remembers more, but takes more time (usual: 32 to 512)",
        min=1,
        fixed=BY_NETWORKS,
    )
    burn_in: int = tunable(
        8,
        "with lstm and gru: rows at the front of a sequence that only bring the memory up to date; more: less error "
        "from a memory that older parameters left, but more work (usual: 0 to 40)",
        min=0,
    )
    learned_steps: int = tunable(
        32,
        "with lstm and gru: rows of a sequence that are learned from, behind its burn-in; more: learns what lies "
        "further back, but a gradient step takes longer (usual: 16 to 80)",
        min=1,
    )


@dataclass(frozen=True, kw_only=True)
class ContinuousConfig(ReplayConfig):
    """Hyper-parameters of an actor with critics of observation and action.

    Until the table holds ``min_rows`` rows, the actions are random and uniform.
    """

    critic_lr: float = tunable(
        3e-4,
        "learning rate of the critics; too large: values diverge; too small: values lag behind the policy "
        "(usual: 1e-4 to 1e-3)",
        min=0,
    )
    tau: float = tunable(
        0.005,
        "share of the way that targets move to their networks at a step; more: learns faster, but less steadily "
        "(usual: 0.001 to 0.05)",
        min=0,
        max=1,
    )
    critic_layer_norm: bool = tunable(
        False,
        "normalise the outputs of each hidden layer of the critics, but not of the actor; values stay bounded where "
        "updates_per_step is high, but a step takes longer",
        fixed=BY_NETWORKS,
    )
    critic_dropout: float = tunable(
        0.0,
        "share of the critics' hidden outputs that count as 0 while learning; more: less overfitting where "
        "updates_per_step is high, but blurred values (usual: 0 to 0.1)",
        min=0,
        max=0.9,
        fixed=BY_NETWORKS,
    )
    """The usual values are those of Hiraoka et al. 2022, which calls the two settings together DroQ."""
    imitation: float = tunable(
        0.0,
        "how strongly the policy keeps to the actions of --demonstrations; more: closer to them, also where better "
        "actions are known; 0: they are learned from as any rows (usual: 0.1 to 2.5)",
        min=0,
    )
    """The reciprocal of alpha in Fujimoto and Gu 2021, https://arxiv.org/abs/2106.06860, which has 2.5."""

    def more_fields(self) -> tuple[str, ...]:
        """As `ReplayConfig.more_fields`."""
        return (DEMONSTRATED,) if self.imitation else ()


def off_policy_spec(
    spaces: Spaces,
    config: ReplayConfig,
    graph: PolicyGraph,
    *,
    learned: Sequence[ArraySpec],
    targeted: Sequence[str],
    losses: Sequence[str],
    others: Sequence[ArraySpec] = (),
) -> AlgorithmSpec:
    """The spec of an algorithm that samples rows uniformly and begins with uniform actions.

    Each row is one step of one lane; no rewards of later steps are summed into it.

    Args:
        spaces: the spaces of one lane.
        config: when and how much is learned.
        graph: the policy.
        learned: the vectors that gradient steps change.
        targeted: the names of the vectors that have a target, ``target.<name>``.
        losses: those that gradients come from, as for `penstock.algorithms.optimizer.spec.scale_arrays`.
        others: more arrays of the state.

    Raises:
        ConfigError: the optimizer of ``config`` does not suit the policy, or does not read a setting that was given.
    """
    fields = tuple(name for name, _ in spaces.obs)
    check_optimizer(config, graph.actor)
    optimizer = tuple(part for vector in learned for part in _optimizer_arrays(config, vector))
    return AlgorithmSpec(
        topology="off_policy",
        row=(),
        policy=graph,
        state=(
            *learned,
            *(replace(part, name=f"target.{part.name}") for part in learned if part.name in targeted),
            *others,
            *graph.statistics(),
            GRADIENT_STEPS,
            *optimizer,
            *scale_arrays(config.precision, losses),
            ArraySpec("progress", (), "float64"),
        ),
        targets=(),
        minibatch=(
            *fields,
            *(f"next.{name}" for name in fields),
            "action",
            "reward",
            "discount",
            *config.more_fields(),
        ),
        schedule=ReplaySchedule(
            config.mini_batch_size, config.updates_per_step, config.min_rows, config.reuse, config.reset_every
        ),
        table=TableSpec(config.capacity, config.gamma),
        warmup=config.min_rows,
        optimizer=tuple(part.name for part in optimizer),
    )


def over_sequences(spec: AlgorithmSpec, spaces: Spaces, config: SequenceConfig, topology: str) -> AlgorithmSpec:
    """The spec with minibatches of sequences in place of single rows, with as many rows to learn from.

    Of the fields of a minibatch only ``importance`` is kept: it is the sequence's.
    """
    schedule, table = spec.replay()
    count = max(1, schedule.mini_batch_size // config.learned_steps)
    fields = (*(name for name, _ in spaces.obs), "first", *(part.name for part in spec.policy.carry))
    kept = tuple(name for name in spec.minibatch if name == "importance")
    return replace(
        spec,
        topology=topology,
        minibatch=(*fields, "action", "reward", "terminated", "valid", *kept),
        schedule=replace(schedule, mini_batch_size=count),
        unit="lane",
        table=replace(table, sequences=Sequences(config.burn_in, config.learned_steps)),
    )


def _optimizer_arrays(config: ReplayConfig, vector: ArraySpec) -> tuple[ArraySpec, ...]:
    """The arrays of one vector's optimizer. Vectors step at different times, so each has a count of steps."""
    counts = (ArraySpec(f"{STEPS}.{vector.name}", (), "int64"),) if counts_steps(config) else ()
    return (*optimizer_arrays(config, [vector]), *counts)


def with_statistics(graph: PolicyGraph, spaces: Spaces, config: ReplayConfig) -> PolicyGraph:
    """The graph with running statistics of observations, if ``config`` asks for them. Raises as `normalising`."""
    return normalising(graph, spaces) if config.normalize_obs else graph


def body_of(config: ReplayConfig) -> Body:
    """The layers that ``config`` asks for."""
    size = config.memory_size if isinstance(config, SequenceConfig) else 0
    body = Body(config.model, config.hidden_sizes, config.activation, layer_norm=config.layer_norm, init=config.init)
    return replace(body, memory_size=size)


def stacked(name: str, network: Network, count: int) -> ArraySpec:
    """``count`` networks of one architecture, one after the other in one vector: one optimizer step changes all."""
    return ArraySpec(name, (count * network.num_parameters,), "float32")


def initial_arrays(spec: AlgorithmSpec, networks: Mapping[str, Sequence[Network]], seed: int) -> Arrays:
    """The first state: random networks that depend on ``seed``, equal targets, variances 1, everything else 0.

    Scales of losses begin as `first_scales` says.

    Args:
        spec: lists the arrays of the state.
        networks: name of a vector -> the networks that lie in it.
        seed: the seed of the run.
    """
    state = {part.name: np.zeros(part.shape, part.dtype) for part in spec.state}
    if "obs_var" in state:
        state["obs_var"] = np.ones_like(state["obs_var"])
    number = 0
    for name, parts in networks.items():
        vectors = []
        for part in parts:
            vectors.append(part.initial(np.random.default_rng([seed, number])))
            number += 1
        state[name] = np.concatenate(vectors)
        if f"target.{name}" in state:
            state[f"target.{name}"] = state[name].copy()
    return {**state, **first_scales(spec.state)}
