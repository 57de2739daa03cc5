"""What ``spec.py`` of an algorithm gives: the algorithm as plain data. Has no function of its own that learns."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from penstock.errors import PenstockError
from penstock.policies import PolicyGraph
from penstock.policies.exploration import IN_FULL, Explore
from penstock.types import ArraySpec, Spaces

__all__ = [
    "APPROX_KL",
    "DEMONSTRATED",
    "HELD_OUT",
    "KL",
    "KL_COEF",
    "AlgorithmSpec",
    "Cloning",
    "Priorities",
    "ReplaySchedule",
    "Schedule",
    "Sequences",
    "TableSpec",
]

DEMONSTRATED = "demonstrated"
"""The field of a minibatch that tells demonstrations (1) from the run's own rows (0)."""
HELD_OUT = "held_out"
"""The field of a minibatch that tells rows of held-out episodes (1) from those that are learned from (0)."""
APPROX_KL = "approx_kl"
"""With ``target_kl``: the metric of a phase that says how far the policy has moved from the one that acted."""
KL, KL_COEF = "kl", "kl_coef"
"""With ``kl_target``: the metric of a phase, and the array of the state that is adapted by it."""


@dataclass(frozen=True)
class Schedule:
    """How a LearnerNode splits a batch into minibatches."""

    epochs: int
    mini_batch_size: int
    target_kl: float | None = None
    """Stop a batch's epochs once the mean ``approx_kl`` of an epoch is higher. ``None``: never stop."""
    kl_target: float | None = None
    """Double or halve ``kl_coef``, float32 ``()`` of the state, after each batch, so that the metric ``kl`` of its last
    epoch comes near this. ``None``: the state has no such array."""

    def ends_epochs(self, divergence: float) -> bool:
        """True if a batch's epochs end after one whose mean ``approx_kl`` is this. That of NaN ends them, too."""
        return self.target_kl is not None and not divergence <= self.target_kl


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
class Cloning:
    """All rows of a minibatch come from demonstrations. Those that environments give only show how good a policy is."""

    held_out: float
    """Share of the episodes that nothing is learned from, in [0, 0.5]."""
    judging: float
    """Share of each minibatch that comes from these episodes; 0 if there are none. ``held_out`` names its rows."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """What the other packages need to know of an algorithm, as plain data without torch."""

    topology: str
    """Name of the topology: ``on_policy``, ``async_on_policy``, ..."""
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
    cloning: Cloning | None = None
    """Set with a ``table``, by an algorithm that learns from demonstrations alone. ``None``: from own rows as well."""

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
        """The fields that ``minibatch`` may name of a unit that is sampled from a table; see `sampled`.

        Of a row, ``demonstrated`` is 1 if it comes from ``--demonstrations``, and 0 if it is the run's own;
        ``held_out`` is 1 if nothing may be learned from it, and 0 otherwise.
        """
        if self.table is not None and self.table.sequences is not None:
            return self._of_sequence(spaces, self.table.sequences.length)
        return {
            **{spec.name: spec for spec in spaces.obs_specs()},
            **{f"next.{s.name}": replace(s, name=f"next.{s.name}") for s in spaces.obs_specs()},
            "action": spaces.action_spec(),
            **{name: ArraySpec(name, (), "float32") for name in ("reward", "discount", "importance")},
            **{name: ArraySpec(name, (), "float32") for name in (DEMONSTRATED, HELD_OUT)},
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
