"""A table: slots that are overwritten in order and read at random. Rings no bell and does not sample.

Each writer has its own ring of slots and fills them one after the other: sequence 0, 1, 2, ... No reader gives a slot
back, so a writer never waits. A reader checks after each copy whether a writer has overwritten the slot meanwhile. A
writer that dies between ``claim`` and ``push`` loses the content of that slot, which no reader has seen. Its successor
claims the same sequence.
"""

import copy
from collections.abc import Sequence

import numpy as np

from penstock.memory import _native
from penstock.memory.layout import Layout, aligned
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["Table"]

_FIRST = 2
"""Place of ``first`` among the words of a writer. The layout of native/memory/table.hpp: claimed, written, first."""


class Table:
    """Rings of slots of named arrays in shared memory.

    Sequence s of a writer can be read while ``claimed - slots <= s < written`` and ``s >= first``. One writer of each
    ring at a time.

    Attributes:
        arrays: field -> ``[writers * slots, ...]``: all slots as one array, one writer's ring after the other.
        heads: the counts of all writers as bytes, for native code that reads while the writers write.
        specs: the arrays of one slot.
        writers: number of rings.
        slots: number of slots of each ring.
        checksums: uint64 ``[writers * slots]``, one for each slot; ``None`` for a table without checksums.
    """

    def __init__(
        self,
        bytes: Array,  # noqa: A002
        specs: Sequence[ArraySpec],
        writers: int,
        slots: int,
        checksums: Array | None = None,
    ) -> None:
        """Attach to ``required(specs, writers, slots)`` bytes, uint8, that start at a multiple of 64 and were zero.

        Args:
            bytes: the memory.
            specs: the arrays of one slot.
            writers: number of rings, at least 1.
            slots: number of slots of each ring, at least 2: one can be read while the other is filled.
            checksums: bytes of the slots' checksums, ``8 * writers * slots``; ``None``: the table has none.

        Raises:
            ValueError: there are too few writers or slots.
        """
        if writers < 1 or slots < 2:
            raise ValueError(f"a table needs at least 1 writer and 2 slots for each, not {writers} and {slots}")
        self.writers = writers
        self.slots = slots
        self._words = _native.Table(bytes, writers, slots)
        self.heads: Array = bytes[: _native.Table.required(writers)]
        self._firsts = _firsts(self.heads, writers)
        layout = Layout([spec.within(writers * slots) for spec in specs])
        self.specs = tuple(specs)
        self.checksums = None if checksums is None else checksums[: 8 * writers * slots].view(np.uint64)
        self.arrays: Arrays = layout.views(bytes, aligned(_native.Table.required(writers)))

    @staticmethod
    def required(specs: Sequence[ArraySpec], writers: int, slots: int) -> int:
        """Bytes that such a table takes."""
        layout = Layout([spec.within(writers * slots) for spec in specs])
        return aligned(_native.Table.required(writers)) + layout.nbytes

    def shard(self, number: int, of: int) -> "Table":
        """The rings of one of ``of`` equal shares of the writers, in order, as a table over the same memory.

        Raises:
            ValueError: the writers cannot be shared equally.
        """
        if self.writers % of:
            raise ValueError(f"{self.writers} writers cannot be shared equally by {of}")
        found, count = copy.copy(self), self.writers // of
        head = len(self.heads) // of
        heads, rings = (slice(number * size, (number + 1) * size) for size in (head, count * self.slots))
        found.writers, found.heads = count, self.heads[heads]
        found._words = _native.Table(found.heads, count, self.slots)  # noqa: SLF001 - of this class
        found._firsts = self._firsts[number * count : (number + 1) * count]  # noqa: SLF001 - of this class
        found.arrays = {name: array[rings] for name, array in self.arrays.items()}
        found.checksums = None if self.checksums is None else self.checksums[rings]
        return found

    def slot(self, index: int) -> Arrays:
        """The arrays of one slot, as views. They are made at each call, since a table may have very many slots."""
        return {name: array[index, ...] for name, array in self.arrays.items()}

    def claim(self, writer: int, sequence: int) -> int:
        """Open the slot of ``sequence`` for writing and return its flat index. Its old content can no longer be read.

        May be called again before ``push``, also by the successor of a dead writer, which then writes the slot anew.

        Raises:
            ValueError: ``sequence`` is not the writer's next one, which is ``written(writer)``.
        """
        return self._words.claim(writer, sequence)

    def push(self, writer: int, sequence: int) -> None:
        """Make the claimed slot readable.

        Raises:
            FencedError: ``sequence`` is not claimed, or already pushed.
        """
        self._words.push(writer, sequence)

    def sign(self, index: int, sequence: int, parts: Sequence[Array]) -> None:
        """Store a checksum of some arrays of a slot, before the slot is pushed. No effect without checksums.

        Args:
            index: flat index of the slot.
            sequence: sequence of its content.
            parts: contiguous arrays of the slot; the same ones, in the same order, as for ``unaltered``.
        """
        if self.checksums is not None:
            self.checksums[index] = _native.checksum(parts, sequence, index)

    def unaltered(self, index: int, sequence: int, parts: Sequence[Array]) -> bool:
        """True if these arrays of a slot have not changed since ``sign``, or the table has no checksums."""
        return self.checksums is None or int(self.checksums[index]) == _native.checksum(parts, sequence, index)

    def written(self, writer: int) -> int:
        """Number of slots that the writer has pushed. Lower sequences are whole until they are overwritten."""
        return self._words.written(writer)

    def claimed(self, writer: int) -> int:
        """Number of slots that the writer has claimed: ``written``, or one more."""
        return self._words.claimed(writer)

    def index(self, writer: int, sequence: int) -> int:
        """Flat index of the slot that holds ``sequence``: ``writer * slots + sequence % slots``."""
        return self._words.index(writer, sequence)

    def first(self, writer: int) -> int:
        """The oldest sequence that can be read at this moment. The writer may overwrite it at once."""
        return self._words.first(writer)

    def oldest(self, writer: int) -> int:
        """The oldest sequence that is not overwritten yet. Copies made before this call are whole from there on."""
        return self._words.oldest(writer)

    def held(self, writer: int, below: int) -> int:
        """Number of slots below a sequence to sample from: all that can be read, except the one to be filled next."""
        return max(0, below - max(self.first(writer), below - (self.slots - 1)))

    def forget(self, writer: int, below: int) -> None:
        """Let nobody read the slots of a writer below this sequence any more. One process of a run may do that.

        The writer may go on meanwhile. No effect where these slots are overwritten already.
        """
        # A store of 8 aligned bytes. The writer never changes this number after a run has begun.
        self._firsts[writer] = max(below, int(self._firsts[writer]))

    def begin(self, writer: int, sequence: int, first: int) -> None:
        """Let a writer go on at ``sequence``. Its slots from ``first`` on were restored, or are still there.

        Call this before any other process uses the table. If the caller dies in it, its successor may repeat it.
        """
        self._words.begin(writer, sequence, first)


def _firsts(heads: Array, writers: int) -> Array:
    """The word ``first`` of each writer, uint64 ``[writers]``, as a view."""
    return heads.view(np.uint64).reshape(writers, -1)[:, _FIRST]
