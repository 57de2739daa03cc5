"""The contract of an algorithm: plain data in ``spec.py``, pure functions in ``learn.py``, native ones in ``fused.py``.

An algorithm knows no process, environment, loop, logger or device. ``docs/architecture/algorithms.md`` has its rules.
``algorithms-on-paper.md`` tests them on PPO, SAC, TD3, Ape-X, IMPALA with an LSTM, and MAPPO.

This file imports no torch. The arrays of ``learn.py`` are torch tensors, which are called ``Tensors`` here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from penstock.errors import PenstockError
from penstock.kernels.steps import FusedPhase, Minibatches, StepKeys
from penstock.policies import PolicyGraph
from penstock.policies.exploration import IN_FULL, Explore
from penstock.types import Array, ArraySpec, NoiseSpec, Spaces

__all__ = [
    "Algorithm",
    "AlgorithmSpec",
    "Fused",
    "FusedReplay",
    "FusedReplayUpdate",
    "FusedUpdate",
    "Gradients",
    "Phase",
    "Priorities",
    "ReplaySchedule",
    "Schedule",
    "Sequences",
    "StreamShape",
    "TableSpec",
    "Tensors",
    "UpdaterSettings",
]

Tensors: TypeAlias = Mapping[str, Any]
"""Named tensors of one framework: torch in ``learn.py``, NumPy in ``fused.py``."""


@dataclass(frozen=True)
class Schedule:
    """How a LearnerNode splits a batch into minibatches."""

    epochs: int
    mini_batch_size: int
    target_kl: float | None = None
    """Stop a batch's epochs once the mean ``approx_kl`` of an epoch is higher. ``None``: never stop."""


@dataclass(frozen=True)
class ReplaySchedule:
    """How minibatches are sampled from a table, and how many gradient steps are due for each row."""

    mini_batch_size: int
    updates_per_step: float
    """Gradient steps for each collected row. Below 1, there is one step for several rows."""
    min_rows: int
    """Rows in the table before the first gradient step."""
    reuse: float
    """Most gradient steps as a multiple of those due, if rows are slow to come in non-blocking mode."""
    reset_every: int = 0
    """Gradient steps after which all networks and their optimizers begin anew; 0: never."""


@dataclass(frozen=True)
class Priorities:
    """Prioritised sampling: rows have probability ``P ~ p^alpha`` and weight ``(N P)^-beta``, over the largest weight.

    Source: Schaul et al. 2016, https://arxiv.org/abs/1511.05952.
    """

    alpha: float
    beta: float
    """Value at the beginning of the run. It grows linearly to 1 at the run's end."""


@dataclass(frozen=True)
class Sequences:
    """A sampled sequence: consecutive rows of one lane. The first of them is the first row of a rollout."""

    burn_in: int
    """Rows at the front that bring the memory up to date. Their ``weight`` is 0: nothing is learned from them."""
    learned: int
    """Rows after them, which are learned from."""

    @property
    def length(self) -> int:
        """All rows with transitions. One more row has the observation after them."""
        return self.burn_in + self.learned


@dataclass(frozen=True)
class TableSpec:
    """What a replay table keeps, and how rows are sampled from it."""

    capacity: int
    """Number of rows of all lanes together."""
    gamma: float
    n_step: int = 1
    """A sampled ``reward`` sums at most this many steps. ``discount`` multiplies the value of ``next.<field>``."""
    priorities: Priorities | None = None
    """``None``: all rows are equally likely."""
    reward_limit: float = math.inf
    """A sampled ``reward`` sums rewards cut to ``-reward_limit .. reward_limit``. The table keeps them uncut."""
    sequences: Sequences | None = None
    """Set if the unit is a lane: minibatches are sequences, with rewards of single steps. ``None``: single rows."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """What the other rooms need to know of an algorithm, as plain data without torch."""

    topology: str
    """Name of the data pattern: ``on_policy``, ``async_on_policy``, ..."""
    row: tuple[ArraySpec, ...]
    """Row fields that ``act`` gives besides ``action`` (``log_prob``, ``value``, ``q``), for one lane."""
    policy: PolicyGraph
    state: tuple[ArraySpec, ...]
    """Every named array of the state: parameters, moments, statistics, counters."""
    targets: tuple[ArraySpec, ...]
    """The target fields (``advantage``, ``target``), for one lane."""
    minibatch: tuple[str, ...]
    """The row fields and target fields that ``gradients`` reads. Observations have the names of their fields."""
    schedule: Schedule | ReplaySchedule
    unit: Literal["row", "lane"] = "row"
    """What a minibatch consists of, and what its schedule counts. ``row``: single rows. ``lane``, if the time order
    matters: lanes of a rollout, or sequences from a table."""
    table: TableSpec | None = None
    """Set with a `ReplaySchedule`. ``None``: experience comes by a stream and is used for one update."""
    explore: Explore = IN_FULL
    warmup: int = 0
    """Number of rows, over all lanes, whose actions are uniform random before the policy acts."""
    optimizer: tuple[str, ...] = ()
    """The arrays of ``state`` that belong to the optimizer: only ``apply`` reads them."""
    initial_priority: str | None = None
    """``module:function`` in NumPy: ``(rollout, config) -> priorities [T, B]``, the first priorities of a slot's rows.
    ``None``: the largest priority so far."""

    def replay(self) -> tuple[ReplaySchedule, TableSpec]:
        """The replay schedule and the table.

        Raises:
            PenstockError: the algorithm learns from a stream.
        """
        if not isinstance(self.schedule, ReplaySchedule) or self.table is None:
            raise PenstockError("this algorithm has no replay schedule and table: it learns from a stream")
        return self.schedule, self.table

    def rows(self, units: int, num_steps: int) -> int:
        """Rows of ``units`` units of a minibatch, from rollouts of ``num_steps`` steps."""
        if self.unit == "row":
            return units
        sequences = None if self.table is None else self.table.sequences
        return units * (num_steps if sequences is None else sequences.length)

    def shared(self) -> tuple[ArraySpec, ...]:
        """Specs of the arrays that gradients depend on: the state without the optimizer's arrays."""
        return tuple(part for part in self.state if part.name not in self.optimizer)

    def published(self) -> tuple[ArraySpec, ...]:
        """Specs of the published record."""
        return self.policy.published()

    def sampled(self, spaces: Spaces) -> tuple[ArraySpec, ...]:
        """Specs of one unit of a minibatch that is sampled from a table, with its ``weight``.

        Of a row: ``next.<field>`` is the observation up to n steps later. ``reward`` is the discounted sum of the
        rewards until then. ``discount`` multiplies the value of ``next.<field>``; it is 0 after a terminated row.

        Of a sequence of L rows: fields are ``[L + 1, ...]``, ``weight`` ``[L]``, ``importance`` and the carry before
        its first row are ``[...]``. Rows that are not ``valid`` carry no transition. The row after a truncated one is
        such a row: it has the episode's last observation.
        """
        known, sequences = self.known_to_table(spaces), None if self.table is None else self.table.sequences
        weight = ArraySpec("weight", () if sequences is None else (sequences.length,), "float32")
        return (*(known[name] for name in self.minibatch), weight)

    def known_to_table(self, spaces: Spaces) -> dict[str, ArraySpec]:
        """The fields that ``minibatch`` may name of a unit that is sampled from a table; see `sampled`."""
        if self.table is not None and self.table.sequences is not None:
            return self._of_sequence(spaces, self.table.sequences.length)
        return {
            **{spec.name: spec for spec in spaces.obs_specs()},
            **{f"next.{s.name}": replace(s, name=f"next.{s.name}") for s in spaces.obs_specs()},
            "action": spaces.action_spec(),
            **{name: ArraySpec(name, (), "float32") for name in ("reward", "discount", "importance")},
            **{spec.name: spec for spec in self.row},
        }

    def _of_sequence(self, spaces: Spaces, length: int) -> dict[str, ArraySpec]:
        flags = ("terminated", "truncated", "valid", "first")
        rows = (
            *spaces.obs_specs(),
            spaces.action_spec(),
            ArraySpec("reward", (), "float32"),
            *(ArraySpec(name, (), "bool") for name in flags),
            *self.row,
        )
        known = {spec.name: spec.within(length + 1) for spec in rows}
        return known | {spec.name: spec for spec in (*self.policy.carry, ArraySpec("importance", (), "float32"))}


class Gradients(NamedTuple):
    """Result of ``gradients`` for one minibatch."""

    gradients: Tensors
    """Network name -> flat gradient."""
    metrics: Tensors
    """Name -> scalar."""
    per_row: Tensors
    """Name -> ``[m]``, such as new priorities. May be empty."""


class Phase(NamedTuple):
    """One gradient step of an update. An algorithm has an ordered list of phases (SAC: critic, actor)."""

    name: str
    gradients: Callable[[Tensors, Tensors, Tensors], Gradients]
    """``(state, minibatch, noise) -> Gradients``. Pure, compiled. ``minibatch["weight"]`` is 0 for padding rows."""
    apply: Callable[[Tensors, Tensors], Tensors]
    """``(state, gradients) -> changed arrays of the state``. Pure, compiled. ``state["progress"]`` is in [0, 1]."""
    every: int = 1
    """Run at every n-th gradient step of the run (TD3 delays its actor). If it is not 1, ``AlgorithmSpec.state`` needs
    ``gradient_steps``, int64: the updater counts there, so that a resumed run delays the same steps."""
    noise: tuple[tuple[str, NoiseSpec], ...] = ()
    """Noise inputs of ``gradients``, for each minibatch row: float32 ``[m, ...]``, generated from (seed, gradient step,
    phase, row). Its distributions are ``normal`` and ``uniform``."""


def _nothing(minibatch: Tensors, mean: Callable[[Any], Any]) -> Tensors:
    """Default of ``Algorithm.across_minibatch``: no field depends on the other rows of its minibatch."""
    del minibatch, mean
    return {}


class Algorithm(NamedTuple):
    """Result of ``build(spaces, config)`` in ``learn.py``."""

    act: Callable[[Tensors, Tensors], Tensors]
    """``(published, inputs) -> outputs``. Inputs: observation fields ``[n, ...]``, ``noise``, ``explore``. Pure."""
    targets: Callable[[Tensors, Tensors], Tensors]
    """``(state, rollout) -> target fields [T, B]``. ``rollout``: NumPy views of one slot, ``[T + 1, B, ...]``. Pure."""
    statistics: Callable[[Tensors, Tensors], Tensors]
    """``(state, rollout with its targets) -> changed statistics``. Called for each slot, in lane order, after
    ``targets`` and before the phases. Statistics of values change at once, all others after the phases. Pure."""
    phases: tuple[Phase, ...]
    recompute: Callable[[Tensors, Tensors], Tensors] | None = None
    """``(state, rollout) -> fields [T + 1, B]`` under the current parameters, for ``targets``, which finds them in the
    rollout. Called once before an update's first gradient step, for all its lanes, on the learner's device. Pure.
    ``None``: the rollout has all that ``targets`` needs."""
    across_minibatch: Callable[[Tensors, Callable[[Any], Any]], Tensors] = _nothing
    """``(minibatch, mean) -> changed fields [m]``: fields that depend on all rows of a minibatch, such as advantages
    that are normalised by their mean and deviation. ``mean(values [n]) -> scalar`` is the mean by ``weight`` over all
    rows, also over those of other learners. Called once for each minibatch, before the phases. Pure, compiled. A phase
    takes only weighted means over rows. So a minibatch's gradient is the weighted mean of its parts' gradients."""


class StreamShape(NamedTuple):
    """The shape of a stream's arrays: ``[slots, steps + 1, lanes, ...]``."""

    slots: int
    steps: int
    lanes: int

    @property
    def rows(self) -> int:
        """The number of flat rows."""
        return self.slots * (self.steps + 1) * self.lanes


class FusedUpdate(Protocol):
    """Many minibatches in one native call. Holds packed rows and sums of metrics, but no state.

    A learner that shares its minibatches with others takes one at a time: `across_minibatch`, `find`, then `apply`.
    """

    phase: str
    """Name of its one phase, as in ``learn.py``."""

    def pack(self, state: Tensors, rows: Tensors, first: int, count: int) -> None:
        """Copy flat rows ``first .. first + count - 1`` of a batch. Call it before the batch's first minibatch.

        Args:
            state: holds the running statistics.
            rows: the fields of a minibatch, ``[rows, ...]``. Rows that are not valid may hold anything. If the unit is
                a lane, ``valid`` is one of the fields.
            first: first flat row.
            count: number of rows. If the unit is a lane, the row behind each lane is among them.
        """
        ...

    def run(self, state: Tensors, indices: Array, weights: Array) -> None:
        """Run one gradient step for each minibatch ``indices[i]`` of ``[n, m]``, in place. The GIL is released.

        ``indices`` are flat rows, or row 0 of whole lanes.
        """
        ...

    def across_minibatch(self, indices: Array, mean: Callable[[Array], float]) -> Any:  # noqa: ANN401  (for `find` alone)
        """What `find` must know of all rows of a minibatch, such as the moments of its advantages.

        Args:
            indices: ``[m]``, of all rows of the minibatch that are known here.
            mean: ``(values [m]) -> scalar``, the mean by weight over all rows, also over those of other learners.
        """
        ...

    def find(self, state: Tensors, indices: Array, weights: Array, across: Any) -> tuple[Tensors, float]:  # noqa: ANN401
        """The gradients of a minibatch or of a share of it, and the sum of its weights. The GIL is released.

        Args:
            state: parameters.
            indices: ``[m]``, of the rows or lanes of the share.
            weights: ``[m]``; 0 is padding. The gradients of padding alone are zero.
            across: the result of `across_minibatch`.

        Returns:
            Network -> flat gradient, the mean over the share, valid until the next call; and its weight in rows.
        """
        ...

    def apply(self, state: Tensors, gradients: Tensors) -> None:
        """Take a step down these gradients, in place. The GIL is released."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call; empty if there were none."""
        ...


class Fused(NamedTuple):
    """Result of ``build(spaces, config)`` in ``fused.py``: the algorithm without torch, on NumPy arrays.

    The state has the arrays of ``AlgorithmSpec.state``. So this and `Algorithm` can load each other's checkpoints.
    """

    targets: Callable[[Tensors, Tensors], Tensors]
    statistics: Callable[[Tensors, Tensors], Tensors]
    update: Callable[[StreamShape, int], FusedUpdate]
    """``(shape, threads) -> FusedUpdate`` for the rows of such a stream."""


class FusedReplayUpdate(Protocol):
    """All phases of gradient steps from a table in native calls. It holds the state. Each call releases the GIL.

    Threads: 1 or 2; the results are the same bit for bit.
    """

    @property
    def phases(self) -> tuple[FusedPhase, ...]:
        """The phases in order."""
        ...

    gradient_steps: int
    """Gradient steps so far. They decide which phases are due, and are a key of the noise."""

    def load(self, state: Tensors) -> None:
        """Take a whole state, or some of its arrays."""
        ...

    def store(self, state: Tensors) -> None:
        """Write the state into these arrays."""
        ...

    def bind(self, minibatch: Tensors, priority: Array | None) -> None:
        """Learn from these arrays from now on; ``priority`` ``[m]`` is written. The caller keeps them alive."""
        ...

    def run(self, minibatches: Minibatches, keys: StepKeys, steps: int, progress: float, threads: int) -> int:
        """Sample a minibatch into the bound arrays, take a gradient step and rank its rows: ``steps`` times.

        Returns:
            How many steps were taken.

        Raises:
            ResourceError: no row can be sampled.
            BadDataError: a priority is infinite or NaN.
        """
        ...

    def step(self, progress: float, threads: int) -> None:
        """Take one gradient step with the minibatch as it is: every phase that is due."""
        ...

    def find(self, phase: int, threads: int) -> Mapping[str, Array]:
        """The gradients of one phase over the minibatch; valid until the next call."""
        ...

    def apply(self, phase: int, gradients: Tensors, progress: float, threads: int) -> None:
        """Step the phase's vectors by these gradients."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call; empty if there were none."""
        ...


class FusedReplay(NamedTuple):
    """Result of ``build(spaces, config)`` in ``fused.py`` of an algorithm that learns from a table.

    The state has the arrays of ``AlgorithmSpec.state``. So this and `Algorithm` can load each other's checkpoints.
    """

    update: Callable[[int, int], FusedReplayUpdate]
    """``(seed, first_row) -> FusedReplayUpdate``: the run's seed; the number of this learner's first row of noise."""


@dataclass(frozen=True)
class UpdaterSettings:
    """Settings of an updater, as plain data. The arrays of a stream are a separate argument."""

    learn: str
    """``module:attribute`` of the function that builds the algorithm's pure functions, or its fused ones."""
    config: Any
    """The algorithm's config."""
    spec: AlgorithmSpec
    """The algorithm's spec for these spaces."""
    spaces: Spaces
    """The spaces of one lane."""
    device: str
    """Device of the state: ``cpu`` or ``cuda:n``."""
    threads: int
    """Number of threads of the update, in this process."""
    seed: int
    """The run's seed."""
    learner: int = 0
    """Number of this learner in the run. The rows of each learner get noise of their own."""
    compress: str = "none"
    """How gradients are compressed on their way to other learners: a name of the registry, with its argument."""
    pull_after: int = 0
    """If another node applies the gradients: how many gradient steps a learner's parameters may be behind before it
    takes newer ones."""
    waits: bool = False
    """If another node applies the gradients: after each gradient the learner waits for newer parameters."""
    sharing: int = 1
    """Number of learners that share a minibatch. It holds their shares one after the other. This learner finds the
    gradient of its own share."""
    accumulate: int = 1
    """Parts of a minibatch whose gradients are averaged, by weight, before a phase steps. The schedule's
    ``mini_batch_size`` is the number of rows of one part."""
