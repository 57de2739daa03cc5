"""Counters: a grid of integers in shared memory, such as counts of rows, heartbeats and busy times."""

from collections.abc import Sequence

import numpy as np

from penstock.memory import _native
from penstock.types import Array

__all__ = ["Cell", "Counters"]


class Counters:
    """int64 ``[lines, names]``. One process writes each line; all processes may read it.

    Attributes:
        lines: names of the lines (nodes, say).
        names: names of the counters.
    """

    def __init__(self, bytes: Array, lines: Sequence[str], names: Sequence[str]) -> None:  # noqa: A002
        """Attach to ``required(lines, names)`` bytes, uint8, that start at a multiple of 64 and were zero at first.

        Reading works on memory that is not writable, too.
        """
        self.lines = tuple(lines)
        self.names = tuple(names)
        self._line = {line: index for index, line in enumerate(self.lines)}
        self._name = {name: index for index, name in enumerate(self.names)}
        self._bytes = bytes
        self._writable = bool(bytes.flags.writeable)
        self._grid = _native.Counters(bytes, len(self.lines), len(self.names), self._writable)

    @staticmethod
    def required(lines: Sequence[str], names: Sequence[str]) -> int:
        """Bytes that such a grid takes."""
        return _native.Counters.required(len(lines), len(names))

    def cell(self, line: str, name: str) -> "Cell":
        """One counter, looked up once: for hot loops.

        Raises:
            KeyError: there is no such line or counter.
            ValueError: the memory is not writable.
        """
        if not self._writable:
            raise ValueError("these counters were attached for reading only")
        return Cell(self._grid, self._line[line], self._name[name])

    def view(self, line: str, name: str) -> memoryview:
        """One counter as memory, int64 ``[1]``: for the line's own writer, where a call would cost too much.

        Writing it is a plain store to an aligned word. A reader never sees half a store; the store orders nothing.
        """
        stride = self.required(self.lines, self.names) // len(self.lines)
        begin = self._line[line] * stride + self._name[name] * 8
        return self._bytes[begin : begin + 8].view(np.int64).data

    def add(self, line: str, name: str, amount: int = 1) -> None:
        """Add to one counter."""
        self.cell(line, name).add(amount)

    def set(self, line: str, name: str, value: int) -> None:
        """Set one counter."""
        self.cell(line, name).set(value)

    def get(self, line: str, name: str) -> int:
        """One counter. Of two that rows pass, read the later one first: then no more seem to arrive than have left."""
        return self._grid.get(self._line[line], self._name[name])


class Cell:
    """One counter of a grid."""

    __slots__ = ("_grid", "_line", "_name")

    def __init__(self, grid: _native.Counters, line: int, name: int) -> None:
        self._grid = grid
        self._line = line
        self._name = name

    def add(self, amount: int = 1) -> None:
        """Add to it."""
        self._grid.add(self._line, self._name, amount)

    def set(self, value: int) -> None:
        """Set it."""
        self._grid.set(self._line, self._name, value)

    def get(self) -> int:
        """Its value."""
        return self._grid.get(self._line, self._name)
