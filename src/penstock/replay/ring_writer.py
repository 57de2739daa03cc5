"""Writes steps of some lanes into one ring of a table, slot after slot. Samples nothing, and waits for nobody."""

from collections.abc import Mapping

import numpy as np

from penstock.errors import BadDataError, UsageError
from penstock.kernels.finite import are_finite
from penstock.memory.table import Table
from penstock.replay.buffer_layout import BufferLayout
from penstock.replay.priorities import Ranking, enter
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["RingWriter"]


class RingWriter:
    """One life of the writer of a ring. Its successor goes on at the slot that it has not pushed.

    Args:
        layout: of the table.
        table: as its layout says.
        writer: number of the ring.
        tree: the priorities of all rows; ``None``: rows have none.
        ranking: how new rows are ranked.
        sums: sampled rows sum up the rewards of several steps. So the last rows of a full slot wait for the next slot.
    """

    def __init__(
        self,
        layout: BufferLayout,
        table: Table,
        writer: int,
        tree: SumTree | None,
        ranking: Ranking | None,
        *,
        sums: bool,
    ) -> None:
        self._layout = layout
        self._table = table
        self._writer = writer
        self._tree = tree
        self._ranking = ranking
        self._sums = sums
        self._observed = tuple(spec.name for spec in layout.observed)
        self._stored = tuple(spec.name for spec in layout.row)
        self._index = -1
        """Of the slot that is being filled; -1: none is."""
        self._sequence = table.written(writer)
        """Of this slot, or of the next one."""
        self._slot: Arrays = {}
        self._filled = 0
        """Steps in it."""
        self._joins = False
        """Whether the next slot goes on where the last one stopped."""
        self._behind: Arrays = {}
        """Observation field -> ``[lanes, ...]``: what followed the last step; empty: no step is to follow it."""
        self._goes_on = np.zeros(layout.lanes, np.bool_)
        """Lanes whose episode goes on after the last step."""
        if tree is not None:
            # The writer before may have died while it changed priorities.
            tree.recover()

    def push(self, rows: Mapping[str, Array]) -> None:
        """Append k steps of each lane.

        Args:
            rows: name -> ``[k, lanes, ...]``: the fields of a row, ``next_<field>`` for each observation field,
                ``reward``, ``terminated`` and ``truncated``; ``valid`` may be left out. One step may come as
                ``[lanes, ...]``; of a single lane also k steps as ``[k, ...]``, and one as ``[...]``. Other names are
                ignored.

        Raises:
            BadDataError: a field is missing, has another shape or kind of number, or holds NaN or infinity, or a step
                does not begin with the observation after the step before. Then none of the steps is stored.
            UsageError: another writer of this ring has pushed meanwhile.
        """
        self._check_alone()
        given = self._read(rows)
        count = len(given["reward"])
        if count == 0:
            return
        goes_on = given["valid"] & ~given["terminated"] & ~given["truncated"]
        self._check_finite(given)
        self._check_order(given, goes_on)
        first = 0
        while first < count:
            if self._index < 0:
                self._open()
            end = min(count, first + self._layout.rollout_steps - self._filled)
            self._fill({name: values[first:end] for name, values in given.items()})
            first = end
            if self._filled == self._layout.rollout_steps:
                self._hand_on(joins=True)
        self._behind = {name: given[f"next_{name}"][-1].copy() for name in self._observed}
        self._goes_on = goes_on[-1]

    def flush(self) -> None:
        """Let the steps so far be sampled. The rest of their slot stays empty, and the next step begins another one.

        Raises:
            UsageError: another writer of this ring has pushed meanwhile.
        """
        if self._index < 0 and self._joins and self._sums:
            # The last rows of the full slot wait for the next slot. An empty one lets them be sampled.
            self._check_alone()
            self._open()
            for name in self._observed:
                self._slot[name][0] = self._behind[name]
        if self._index >= 0:
            self._check_alone()
            self._hand_on(joins=False)
        self._joins = False
        self._behind = {}

    def _check_finite(self, given: Arrays) -> None:
        for spec in self._layout.row:
            values = given[spec.name]
            if values.dtype.kind != "f":
                continue
            spoilt = ~are_finite(values).reshape(*values.shape[:2], -1).all(axis=2) & given["valid"]
            if spoilt.any():
                step, lane = np.argwhere(spoilt)[0].tolist()
                raise BadDataError(f"{spec.name} of step {step} of lane {lane} holds NaN or infinity")

    def _check_alone(self) -> None:
        """Check that no other writer of this ring has pushed. This one would then write into rows that readers read."""
        if self._table.written(self._writer) != self._sequence:
            raise UsageError(
                f"another writer {self._writer} of this replay buffer has pushed meanwhile; give each process and each "
                "thread a number of its own, and use one writer of a number: buffer.push is writer 0"
            )

    def _read(self, rows: Mapping[str, Array]) -> Arrays:
        """Checked arrays ``[k, lanes, ...]``, as they are stored."""
        if not isinstance(rows, Mapping):
            raise BadDataError(f"rows are a mapping of names to arrays, not {type(rows).__name__}")
        if "reward" not in rows:
            raise BadDataError("rows lack reward")
        leading = self._leading(np.shape(rows["reward"]))
        given = {
            spec.name: self._array(rows, spec, spec.name, leading) for spec in self._layout.row if spec.name != "valid"
        }
        for spec in self._layout.observed:
            given[f"next_{spec.name}"] = self._array(rows, spec, f"next_{spec.name}", leading)
        whole = {"valid": np.ones(leading, np.bool_)}
        given["valid"] = self._array({**whole, **rows}, ArraySpec("valid", (), "bool"), "valid", leading)
        for name in ("terminated", "truncated"):
            given[name] = given[name] & given["valid"]
        return given

    def _leading(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The leading dimensions of all arrays, for a reward of this shape."""
        lanes = self._layout.lanes
        if shape[1:] == (lanes,) or (lanes == 1 and len(shape) < 2) or shape == (lanes,):
            return shape
        one = "[k], or one number for one step" if lanes == 1 else f"[{lanes}] for one step"
        raise BadDataError(f"reward has shape {list(shape)}; wanted [k, {lanes}] for k steps, or {one}")

    def _array(self, rows: Mapping[str, Array], spec: ArraySpec, name: str, leading: tuple[int, ...]) -> Array:
        if name not in rows:
            raise BadDataError(f"rows lack {name}")
        values = np.asarray(rows[name])
        wanted = (*leading, *spec.shape)
        if values.shape != wanted:
            raise BadDataError(f"{name} has shape {list(values.shape)}; wanted {list(wanted)}, as reward has it")
        if not np.can_cast(values.dtype, spec.dtype, "same_kind"):
            raise BadDataError(f"{name} holds {values.dtype}, which is no {spec.dtype}")
        # Convert before the order is checked: observations are compared as they are stored, whatever type they had.
        stored = values.astype(spec.dtype, copy=False)
        return stored.reshape(stored.size // (self._layout.lanes * spec.size), self._layout.lanes, *spec.shape)

    def _check_order(self, given: Arrays, goes_on: Array) -> None:
        """Check that each step begins where the one before has ended, unless that ended its episode.

        An observation is stored once, so another one would be lost.
        """
        for name in self._observed:
            after, obs = given[f"next_{name}"], given[name]
            if self._behind:
                _check_same(name, self._behind[name][None], obs[:1], self._goes_on[None], first=0)
            _check_same(name, after[:-1], obs[1:], goes_on[:-1], first=1)

    def _open(self) -> None:
        """Claim the next slot."""
        self._index = self._table.claim(self._writer, self._sequence)
        self._slot = self._table.slot(self._index)
        self._slot["continues"][...] = self._joins
        self._slot["final_count"][...] = 0
        self._filled = 0

    def _fill(self, part: Arrays) -> None:
        """Write steps that fit into the open slot."""
        slot, begin = self._slot, self._filled
        end = begin + len(part["reward"])
        for name in self._stored:
            slot[name][begin:end] = part[name]
        for name in self._observed:
            # The next step overwrites it with its own observation, which is the same or begins an episode.
            slot[name][end] = part[f"next_{name}"][-1]
        steps, lanes = np.nonzero(part["truncated"])
        if len(steps):
            place = int(slot["final_count"])
            entries = slice(place, place + len(steps))
            slot["final_t"][entries] = begin + steps
            slot["final_lane"][entries] = lanes
            for name in self._observed:
                slot[f"final.{name}"][entries] = part[f"next_{name}"][steps, lanes]
            slot["final_count"][...] = place + len(steps)
        self._filled = end

    def _hand_on(self, *, joins: bool) -> None:
        """Let readers have the open slot."""
        slot, sequence = self._slot, self._sequence
        slot["valid"][self._filled :] = False
        if self._tree is not None and self._ranking is not None:
            # Before the push. If this process dies in between, the priorities belong to rows that nobody can read yet.
            enter(self._tree, self._ranking, slot, self._index, sequence)
        self._table.push(self._writer, sequence)
        self._index, self._sequence, self._joins = -1, sequence + 1, joins


def _check_same(name: str, after: Array, obs: Array, goes_on: Array, *, first: int) -> None:
    """Check that observations ``[k, lanes, ...]`` equal those after the steps before, where episodes go on.

    Args:
        name: of the observation field.
        after: what followed the steps before.
        obs: what the steps begin with.
        goes_on: bool ``[k, lanes]``.
        first: number of the first of these steps, for the error text.

    Raises:
        BadDataError: they differ.
    """
    # The usual case, in which no episode has ended.
    if np.array_equal(after, obs):
        return
    apart = np.argwhere(goes_on & ~(after == obs).reshape(*goes_on.shape, -1).all(axis=2))
    if len(apart):
        step, lane = apart[0]
        raise BadDataError(
            f"{name} of step {first + step} of lane {lane} is not next_{name} of the step before, or holds NaN; give "
            "the steps of a lane in order, mark an episode's last one as terminated or truncated, or call flush between"
        )
