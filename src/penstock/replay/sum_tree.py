"""A sum tree of priorities in shared memory. Many processes may change it and sample from it at once. Knows no table.

Each leaf holds a priority and a tag of its row's stamp. So a priority that was computed for an overwritten row never
reaches the row that replaced it. A process that dies while it changes priorities leaves outdated sums; the next change
of a leaf nearby corrects them, and so does `recover`.
"""

from typing import TypeAlias

import numpy as np

from penstock.replay import _native
from penstock.types import Array

__all__ = ["Ranks", "SumTree", "SumTrees"]

_LEAVES_AT, _PRIORITY, _UNIT = 64, (1 << 36) - 1, 2.0**-22
# The layout of native/replay/sum_tree.hpp: the largest priority; after one cache line the leaves, priority in low bits.


class SumTree:
    """Priorities of ``capacity`` rows, in units of 2^-22, from 0 to below 16,384. Priority 0 is never sampled.

    For one thread at a time in each process.

    Attributes:
        native: the native tree, for native code of `replay`.
    """

    def __init__(self, bytes: Array, capacity: int) -> None:  # noqa: A002
        """Attach to ``required(capacity)`` bytes, uint8. They start at a multiple of 64 and were zero at first.

        Args:
            bytes: the memory.
            capacity: number of rows, at least 1.

        Raises:
            ResourceError: the memory does not fit.
            ValueError: ``capacity`` is below 1.
        """
        if capacity < 1:
            raise ValueError(f"a sum tree has at least one row, not {capacity}")
        self.native = _native.SumTree(bytes, capacity)
        self._largest = bytes[:8].view(np.uint64)
        self._leaves = bytes[_LEAVES_AT : _LEAVES_AT + 8 * capacity].view(np.uint64)

    @staticmethod
    def required(capacity: int) -> int:
        """Bytes that a tree takes: about 8.6 a row."""
        return _native.SumTree.required(capacity)

    def set(self, first: int, stamp: int, priorities: Array) -> None:
        """Give new rows, from ``first`` on, a stamp and priorities. Only the process that writes them may call it.

        Args:
            first: flat row.
            stamp: the sequence of the rows' slot.
            priorities: ``[n]``. One above 0 stays above 0; one that is too large becomes the largest possible.

        Raises:
            IndexError: a row is out of range.
            ValueError: a priority is negative or not finite.
        """
        self.native.set(first, stamp, np.asarray(priorities, np.float64))

    def update(self, rows: Array, stamps: Array, priorities: Array) -> int:
        """Change the priorities of rows that still have these stamps.

        Args:
            rows: int64 ``[n]``. Rising order is faster.
            stamps: int64 ``[n]``.
            priorities: ``[n]``, as for `set`.

        Returns:
            How many rows had their stamp. The others keep their priority.

        Raises:
            IndexError: a row is out of range.
            ValueError: a priority is negative or not finite, or the lengths differ.
        """
        return self.native.update(rows, stamps, np.asarray(priorities, np.float64))

    def sample(self, key: tuple[int, int], rows: Array, stamps: Array, probabilities: Array) -> None:
        """Sample n rows by their priorities, one in each of n equal parts of the sum (Schaul et al. 2016).

        Args:
            key: seed and number of the batch.
            rows: int64 ``[n]``, filled; -1 if priorities were changing at that moment.
            stamps: int64 ``[n]``, filled: stamps modulo 2^28.
            probabilities: float64 ``[n]``, filled: priority over the sum of all.

        Raises:
            ResourceError: every priority is 0.
        """
        self.native.sample(key[0], key[1], rows, stamps, probabilities)

    def read(self, rows: Array) -> Array:
        """The priorities of these rows, float64 ``[n]``, exactly."""
        return (self._leaves[rows] & np.uint64(_PRIORITY)).astype(np.float64) * _UNIT

    def total(self) -> float:
        """The sum of all priorities."""
        return self.native.total()

    def max_priority(self) -> float:
        """The largest priority that was ever given, 0 before the first."""
        return self.native.max_priority()

    def largest(self) -> Array:
        """``max_priority`` as an array, float64 ``[1]``."""
        return np.array([self.max_priority()])

    def put_largest(self, priority: float | Array) -> None:
        """Set ``max_priority`` to this value, or to the largest of these. No other process may change any meanwhile."""
        self._largest[0] = round(float(np.max(priority)) / _UNIT)

    def recover(self) -> None:
        """Make all sums exact again after a process was killed and reaped. Other processes may go on meanwhile."""
        self.native.recover()


class SumTrees:
    """Priorities of the rows of a table in shards: a sum tree for each. Rows are numbered over all shards.

    Args:
        bytes: ``required(capacity, shards)`` bytes, as for `SumTree`.
        capacity: number of rows, a multiple of ``shards``.
        shards: number of shards. Each has as many rows, one shard after the other.
    """

    def __init__(self, bytes: Array, capacity: int, shards: int = 1) -> None:  # noqa: A002
        self._rows = capacity // shards
        step = SumTree.required(self._rows)
        self._trees = [SumTree(bytes[number * step : (number + 1) * step], self._rows) for number in range(shards)]

    @staticmethod
    def required(capacity: int, shards: int = 1) -> int:
        """Bytes that these trees take."""
        return shards * SumTree.required(capacity // shards)

    def shard(self, number: int) -> SumTree:
        """The tree of one shard, whose rows are numbered from 0 on."""
        return self._trees[number]

    def set(self, first: int, stamp: int, priorities: Array) -> None:
        """As `SumTree.set`, for rows of one shard."""
        number, row = divmod(first, self._rows)
        self._trees[number].set(row, stamp, priorities)

    def update(self, rows: Array, stamps: Array, priorities: Array) -> int:
        """As `SumTree.update`."""
        count = 0
        # A row that is out of range goes to the nearest shard, which refuses it.
        shards = np.clip(rows // self._rows, 0, len(self._trees) - 1)
        for number, tree in enumerate(self._trees):
            own = shards == number
            count += tree.update(rows[own] - number * self._rows, stamps[own], priorities[own])
        return count

    def read(self, rows: Array) -> Array:
        """As `SumTree.read`."""
        found, shards = np.zeros(rows.shape), rows // self._rows
        for number, tree in enumerate(self._trees):
            own = shards == number
            found[own] = tree.read(rows[own] - number * self._rows)
        return found

    def largest(self) -> Array:
        """The largest priority that was ever given in each shard, float64 ``[shards]``."""
        return np.concatenate([tree.largest() for tree in self._trees])

    def put_largest(self, priorities: Array) -> None:
        """Set ``largest``. Priorities of another number of shards count as their maximum."""
        known = np.atleast_1d(priorities)
        if len(known) != len(self._trees):
            known = np.full(len(self._trees), known.max())
        for tree, priority in zip(self._trees, known.tolist(), strict=True):
            tree.put_largest(priority)

    def recover(self) -> None:
        """As `SumTree.recover`."""
        for tree in self._trees:
            tree.recover()


Ranks: TypeAlias = SumTree | SumTrees
"""The priorities of all rows of a table."""
