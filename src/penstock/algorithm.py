"""THE contract of an algorithm: plain data in ``spec.py``, pure functions in ``learn.py``, natively in ``fused.py``.

An algorithm knows no process, environment, loop, logger or device. ``docs/architecture/algorithms.md`` has
its rules; ``algorithms-on-paper.md`` beside it proves it for PPO, SAC, TD3, Ape-X, IMPALA with an LSTM, and MAPPO.

This file imports no torch: arrays of ``learn.py`` are torch tensors, written ``Tensors`` here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from penstock.errors import PenstockError
from penstock.policies import PolicyGraph
from penstock.policies.exploration import IN_FULL, Explore
from penstock.types import Array, ArraySpec, NoiseSpec, Spaces

__all__ = [
    "Algorithm",
    "AlgorithmSpec",
    "Fused",
    "FusedUpdate",
    "Gradients",
    "Phase",
    "Priorities",
    "ReplaySchedule",
    "Schedule",
    "TableSpec",
    "Tensors",
    "UpdaterSettings",
]

Tensors: TypeAlias = Mapping[str, Any]
"""Named tensors of one framework (torch in ``learn.py``, numpy in ``fused.py``)."""


@dataclass(frozen=True)
class Schedule:
    """How LearnerNode turns a batch into minibatches."""

    epochs: int
    mini_batch_size: int
    target_kl: float | None = None
    """Stop a batch's epochs once the mean ``approx_kl`` of an epoch passes it; ``None`` never stops."""


@dataclass(frozen=True)
class ReplaySchedule:
    """How minibatches are drawn from a table: so many gradient steps for each step of an environment."""

    mini_batch_size: int
    updates_per_step: float
    """Gradient steps for each row that is collected; below 1: one every so many rows."""
    min_rows: int
    """Rows in the table before the first gradient step."""
    reuse: float
    """Where collection overlaps learning and rows are slow to come, gradient steps go on up to so many times those."""

    def progress(self, gradient_steps: int, timesteps: int) -> float:
        """How far a run is, in [0, 1], by its gradient steps alone."""
        return min(1.0, (self.min_rows + gradient_steps / self.updates_per_step) / timesteps)


@dataclass(frozen=True)
class Priorities:
    """Prioritised drawing: rows with probability ``p^alpha``, weighed by ``(N P)^-beta`` over the largest weight.

    Source: Schaul et al. 2016, https://arxiv.org/abs/1511.05952.
    """

    alpha: float
    beta: float
    """At the beginning of the run; it grows in a straight line to 1 at its end."""


@dataclass(frozen=True)
class TableSpec:
    """What a replay table keeps, and what is drawn from it."""

    capacity: int
    """Rows of all lanes together."""
    gamma: float
    n_step: int = 1
    """A drawn ``reward`` sums up to so many steps; ``discount`` is what the value of ``next.<field>`` counts."""
    priorities: Priorities | None = None
    """``None``: every row is as likely."""
    reward_limit: float = math.inf
    """A drawn ``reward`` sums rewards cut to ``-reward_limit .. reward_limit``; rows keep them as they are."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """What the rest of the house needs to know of an algorithm, as plain data (no torch)."""

    topology: str
    """Name of the data pattern: ``on_policy``, ``async_on_policy``, ..."""
    row: tuple[ArraySpec, ...]
    """Fields of a rollout row that ``act`` gives beyond ``action`` (``log_prob``, ``value``, ``q``), per lane."""
    policy: PolicyGraph
    noise: NoiseSpec
    """The noise input of ``act``."""
    state: tuple[ArraySpec, ...]
    """Every named array of the state: parameters, moments, statistics, counters."""
    targets: tuple[ArraySpec, ...]
    """What ``targets`` computes for each row (``advantage``, ``target``), per lane."""
    minibatch: tuple[str, ...]
    """The row and target fields that ``gradients`` reads; observations are named by their own fields."""
    schedule: Schedule | ReplaySchedule
    unit: Literal["row", "lane"] = "row"
    """What a minibatch is made of: rows, or whole lanes where time order matters."""
    table: TableSpec | None = None
    """Of a `ReplaySchedule`. ``None``: experience comes by stream, and is learned from once."""
    explore: Explore = IN_FULL
    warmup: int = 0
    """Rows, over all lanes, whose actions are drawn uniformly before the policy acts."""
    optimizer: tuple[str, ...] = ()
    """The arrays of ``state`` that are the optimizer's own: ``apply`` alone reads them."""
    initial_priority: str | None = None
    """``module:function`` in NumPy: ``(rollout, config) -> priorities [T, B]`` of a slot's own rows before anybody has
    learned from them. ``None``: the largest priority so far."""

    def replay(self) -> tuple[ReplaySchedule, TableSpec]:
        """How it learns from a table, and from which.

        Raises:
            PenstockError: it learns from a stream.
        """
        if not isinstance(self.schedule, ReplaySchedule) or self.table is None:
            raise PenstockError("a table is learned from by a replay schedule")
        return self.schedule, self.table

    def shared(self) -> tuple[ArraySpec, ...]:
        """Specs of what gradients are found from: the state without what is the optimizer's own."""
        return tuple(part for part in self.state if part.name not in self.optimizer)

    def published(self) -> tuple[ArraySpec, ...]:
        """Specs of the published record."""
        return self.policy.published()

    def sampled(self, spaces: Spaces) -> tuple[ArraySpec, ...]:
        """Specs of one row of a minibatch that is sampled from a table, ``weight`` among them.

        ``next.<field>`` is the observation up to n steps on, ``reward`` the discounted sum on the way there,
        ``discount`` what the value there is multiplied by: 0 behind a terminated row.
        """
        known = {
            **{spec.name: spec for spec in spaces.obs_specs()},
            **{f"next.{s.name}": replace(s, name=f"next.{s.name}") for s in spaces.obs_specs()},
            "action": spaces.action_spec(),
            **{name: ArraySpec(name, (), "float32") for name in ("reward", "discount", "importance")},
            **{spec.name: spec for spec in self.row},
        }
        return (*(known[name] for name in self.minibatch), ArraySpec("weight", (), "float32"))


class Gradients(NamedTuple):
    """What one minibatch gives."""

    gradients: Tensors
    """Network name -> flat gradient."""
    metrics: Tensors
    """Name -> scalar."""
    per_row: Tensors
    """Name -> ``[m]`` (new priorities, say); empty where there is none."""


class Phase(NamedTuple):
    """One gradient step of an update; an algorithm is an ordered list of them (SAC: critic, actor)."""

    name: str
    gradients: Callable[[Tensors, Tensors, Tensors], Gradients]
    """``(state, minibatch, noise) -> Gradients``. Pure, compiled. ``minibatch["weight"]`` is 0 for padding rows."""
    apply: Callable[[Tensors, Tensors], Tensors]
    """``(state, gradients) -> changed arrays of the state``. Pure, compiled. ``state["progress"]`` is in [0, 1]."""
    every: int = 1
    """Run at every n-th gradient step of the run (TD3 delays its actor). Where one is not 1, ``AlgorithmSpec.state``
    has ``gradient_steps``, int64: the updater counts there, so that a resumed run delays the same steps."""
    noise: tuple[tuple[str, NoiseSpec], ...] = ()
    """Noise inputs of ``gradients``, per minibatch row: float32 ``[m, ...]``, drawn by counter from (seed, gradient
    step, phase, row). Its distributions are ``normal`` and ``uniform``."""


def _nothing(minibatch: Tensors) -> Tensors:
    """Of most algorithms: no row depends on the others of its minibatch."""
    del minibatch
    return {}


class Algorithm(NamedTuple):
    """What ``learn.py``'s ``build(spaces, config)`` returns."""

    init_state: Callable[[int], dict[str, Any]]
    """``(seed) -> state`` as numpy arrays, of ``AlgorithmSpec.state``."""
    act: Callable[[Tensors, Tensors], Tensors]
    """``(published, inputs) -> outputs``. Inputs: observation fields ``[n, ...]``, ``noise``, ``explore``. Pure."""
    targets: Callable[[Tensors, Tensors], Tensors]
    """``(state, rollout) -> target fields [T, B]`` from numpy views of one slot, ``[T + 1, B, ...]``. Pure."""
    statistics: Callable[[Tensors, Tensors], Tensors]
    """``(state, rollout and its targets) -> changed statistics``; per slot in lane order, after the phases. Pure."""
    phases: tuple[Phase, ...]
    whole: Callable[[Tensors], Tensors] = _nothing
    """``(minibatch) -> changed fields [m]``: what depends on all rows of a minibatch, such as advantages that are
    normalised by their mean and deviation. Pure, compiled; once a minibatch, before the phases. A phase itself takes
    means over rows, by ``weight``: so the mean of its gradients over parts of a minibatch is that over the whole."""


class FusedUpdate(Protocol):
    """All phases of many minibatches in one native call. Holds packed rows and the sums of metrics, no state."""

    def pack(self, state: Tensors, rows: Tensors, first: int, count: int) -> None:
        """Take flat rows ``first .. first + count - 1`` of a batch, before its first minibatch.

        Args:
            state: holds the running statistics.
            rows: the fields of a minibatch, ``[rows, ...]``; those that carry no transition may hold anything.
            first: first flat row.
            count: number of rows.
        """
        ...

    def run(self, state: Tensors, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices[n, m]``, changing ``state`` in place; the GIL is released."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call; empty if there were none."""
        ...


class Fused(NamedTuple):
    """What ``fused.py``'s ``build(spaces, config)`` returns: the algorithm without torch, on numpy arrays.

    The state's arrays are those of ``AlgorithmSpec.state``, so checkpoints pass between this and `Algorithm`.
    """

    init_state: Callable[[int], dict[str, Any]]
    targets: Callable[[Tensors, Tensors], Tensors]
    statistics: Callable[[Tensors, Tensors], Tensors]
    update: Callable[[int, int], FusedUpdate]
    """``(rows, threads) -> FusedUpdate`` over so many flat rows, on so many threads."""


@dataclass(frozen=True)
class UpdaterSettings:
    """What an updater is built from, as plain data; the arrays of a stream are given beside it."""

    learn: str
    """``module:attribute`` of what makes the algorithm's pure functions, or its fused ones."""
    config: Any
    """The algorithm's."""
    spec: AlgorithmSpec
    """The algorithm's, on these spaces."""
    spaces: Spaces
    """Of one lane."""
    device: str
    """Of the state: ``cpu`` or ``cuda:n``."""
    threads: int
    """Of the update, in this process."""
    seed: int
    """The run's."""
    learner: int = 0
    """Which of the run's learners this is: the rows of each draw noise of their own."""
    accumulate: int = 1
    """Parts of a minibatch whose gradients are averaged, by weight, before a phase steps; the schedule's
    ``mini_batch_size`` counts the rows of one."""
