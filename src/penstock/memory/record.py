"""The commit record of a learner: two buffers of named arrays. One release store makes a buffer current.

A death at any instruction leaves the last committed record whole. Does not know what the arrays mean.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.memory import _native
from penstock.memory.layout import Layout, aligned
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["Committed", "Record"]


class Committed(NamedTuple):
    """A committed record."""

    number: int
    arrays: Arrays


class Record:
    """Named arrays that change all at once. One writer at a time.

    Attributes:
        specs: the arrays of a record.
    """

    def __init__(self, bytes: Array, specs: Sequence[ArraySpec]) -> None:  # noqa: A002
        """Attach to ``required(specs)`` bytes, uint8, that start at a multiple of 64 and were zero at first."""
        self._layout = Layout(specs)
        self.specs = self._layout.specs
        nbytes = self._layout.nbytes
        self._record = _native.Record(bytes, nbytes)
        # Names of arrays -> their layout in a copy, and where they lie in the record.
        self._parts: dict[tuple[str, ...] | None, tuple[Layout, list[tuple[int, int]]]] = {}
        self._buffers = [self._layout.views(bytes, _native.Record.offset(nbytes, index)) for index in range(2)]

    @staticmethod
    def required(specs: Sequence[ArraySpec]) -> int:
        """Bytes that such a record takes."""
        return _native.Record.required(Layout(specs).nbytes)

    def begin(self) -> Arrays:
        """The buffer to fill, name -> view. It holds the record before the current one. ``commit`` makes it current."""
        return self._buffers[self._record.begin()]

    def commit(self, number: int) -> None:
        """Make the buffer of ``begin`` the current record.

        Raises:
            ValueError: ``begin`` was not called.
        """
        if not self._record.commit(number):
            raise ValueError("commit without begin: no buffer was filled; call begin first")

    def write(self, arrays: Mapping[str, Array], number: int) -> None:
        """Fill and commit at once.

        Raises:
            KeyError: an array is missing.
            ValueError: an array has another shape than its spec.
        """
        target = self.begin()
        for name, array in target.items():
            np.copyto(array, arrays[name], casting="equiv")
        self.commit(number)

    def number(self) -> int:
        """Number of the current record, or -1 before the first."""
        current = self._record.current()
        return -1 if current is None else current[1]

    def current(self) -> Committed | None:
        """The current record as views, or ``None`` before the first. For the writer and its successor."""
        current = self._record.current()
        return None if current is None else Committed(current[1], self._buffers[current[0]])

    def copy(self, names: tuple[str, ...] | None = None) -> Committed | None:
        """A copy of the current record, for processes other than the writer.

        Args:
            names: of the arrays that are copied; ``None``: all. A record may hold large networks: name what is needed.

        Returns:
            The copy. ``None`` before the first commit, or if the writer overwrote it meanwhile: then try again.
        """
        if names not in self._parts:
            chosen = [spec for spec in self.specs if names is None or spec.name in names]
            spans = [(self._layout.offsets[spec.name], aligned(spec.nbytes)) for spec in chosen]
            self._parts[names] = Layout(chosen), spans
        layout, spans = self._parts[names]
        target = np.empty(layout.nbytes, np.uint8)
        number = self._record.copy(target, spans)
        return None if number is None else Committed(number, layout.views(target))

    def recover(self) -> bool:
        """Call this after the writer was killed and reaped. True if it died while it filled a buffer."""
        return self._record.recover()
