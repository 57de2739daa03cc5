"""A sum tree of priorities in shared memory. Many processes may change it and sample from it at once. Knows no table.

Each leaf holds a priority and a tag of its row's stamp. So a priority that was computed for an overwritten row never
reaches the row that replaced it. A process that dies while it changes priorities leaves outdated sums; the next change
of a leaf nearby corrects them, and so does `recover`.
"""

import numpy as np

from penstock.replay import _native
from penstock.types import Array

__all__ = ["SumTree"]

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
        """Bytes that a tree of so many rows takes: about 8.6 a row."""
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

    def put_largest(self, priority: float) -> None:
        """Set ``max_priority`` back to this value. No other process may change priorities meanwhile."""
        self._largest[0] = round(priority / _UNIT)

    def recover(self) -> None:
        """Make all sums exact again after a process was killed and reaped. Other processes may go on meanwhile."""
        self.native.recover()
