"""A table of integers in shared memory: row counters, heartbeats, busy times. Adds up nothing by itself."""

from collections.abc import Sequence

import numpy as np

from penstock.memory import _native
from penstock.types import Array

__all__ = ["Cell", "Counters"]


class Counters:
    """int64 ``[rows, names]``; each row is written by one process, all may read.

    Attributes:
        rows: names of the rows (nodes, say).
        names: names of the counters.
    """

    def __init__(self, bytes: Array, rows: Sequence[str], names: Sequence[str]) -> None:  # noqa: A002
        """Attach to ``required(rows, names)`` bytes, uint8, that start at a multiple of 64 and were zero at first.

        Memory that is not writable will do for reading.
        """
        self.rows = tuple(rows)
        self.names = tuple(names)
        self._row = {row: index for index, row in enumerate(self.rows)}
        self._name = {name: index for index, name in enumerate(self.names)}
        self._bytes = bytes
        self._writable = bool(bytes.flags.writeable)
        self._table = _native.Counters(bytes, len(self.rows), len(self.names), self._writable)

    @staticmethod
    def required(rows: Sequence[str], names: Sequence[str]) -> int:
        """Bytes that a table of this kind takes."""
        return _native.Counters.required(len(rows), len(names))

    def cell(self, row: str, name: str) -> "Cell":
        """One counter, looked up once: for hot loops.

        Raises:
            KeyError: there is no such row or counter.
            ValueError: the memory is not writable.
        """
        if not self._writable:
            raise ValueError("these counters were attached for reading only")
        return Cell(self._table, self._row[row], self._name[name])

    def view(self, row: str, name: str) -> memoryview:
        """One counter as memory, int64 ``[1]``: for the row's own writer, where a call would cost too much.

        A plain store to an aligned word, which is whole at every instant and orders nothing.
        """
        stride = self.required(self.rows, self.names) // len(self.rows)
        begin = self._row[row] * stride + self._name[name] * 8
        return self._bytes[begin : begin + 8].view(np.int64).data

    def add(self, row: str, name: str, amount: int = 1) -> None:
        """Add to one counter."""
        self.cell(row, name).add(amount)

    def set(self, row: str, name: str, value: int) -> None:
        """Set one counter."""
        self.cell(row, name).set(value)

    def get(self, row: str, name: str) -> int:
        """One counter. Read a later counter of a chain first: then never more has arrived than left."""
        return self._table.get(self._row[row], self._name[name])

    def total(self, name: str) -> int:
        """Sum of one counter over all rows."""
        index = self._name[name]
        return sum(self._table.get(row, index) for row in range(len(self.rows)))


class Cell:
    """One counter of a table."""

    __slots__ = ("_name", "_row", "_table")

    def __init__(self, table: _native.Counters, row: int, name: int) -> None:
        self._table = table
        self._row = row
        self._name = name

    def add(self, amount: int = 1) -> None:
        """Add to it."""
        self._table.add(self._row, self._name, amount)

    def set(self, value: int) -> None:
        """Set it."""
        self._table.set(self._row, self._name, value)

    def get(self) -> int:
        """Its value."""
        return self._table.get(self._row, self._name)
