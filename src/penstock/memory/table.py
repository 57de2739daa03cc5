"""A table: slots that are overwritten in order and read at random. Rings no bell and draws no samples.

Each writer has a ring of slots of its own and fills them one after the other: sequence 0, 1, 2, ... Nobody gives a slot
back, so a writer never waits, and a reader finds out after it has copied whether it was overtaken. A writer that dies
between ``claim`` and ``push`` loses that slot's content, which nobody has seen; its successor claims the same sequence.
"""

from collections.abc import Sequence

import numpy as np

from penstock.memory import _native
from penstock.memory.layout import Layout, aligned
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["Table"]


class Table:
    """Rings of slots of named arrays in shared memory.

    Sequence s of a writer can be read while ``claimed - slots <= s < written`` and ``s >= first``. One writer of each
    ring at a time.

    Attributes:
        arrays: field -> ``[writers * slots, ...]``: all slots as one array, each writer's ring after the other.
        heads: the counts of all writers as bytes, for native code that reads beside the writers.
        specs: the arrays of one slot.
        writers: number of rings.
        slots: number of slots of each.
        checksums: uint64 ``[writers * slots]``, a word for each slot; ``None`` for a table that has none.
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
            slots: number of slots of each, at least 2: while one is filled, another is there to be read.
            checksums: bytes of those of its slots, ``8 * writers * slots``; ``None``: it has none.

        Raises:
            ValueError: there are too few writers or slots.
        """
        if writers < 1 or slots < 2:
            raise ValueError(f"a table needs a writer and two slots for each, not {writers} and {slots}")
        self.writers = writers
        self.slots = slots
        self._words = _native.Table(bytes, writers, slots)
        self.heads: Array = bytes[: _native.Table.required(writers)]
        layout = Layout([spec.within(writers * slots) for spec in specs])
        self.specs = tuple(specs)
        self.checksums = None if checksums is None else checksums[: 8 * writers * slots].view(np.uint64)
        self.arrays: Arrays = layout.views(bytes, aligned(_native.Table.required(writers)))

    @staticmethod
    def required(specs: Sequence[ArraySpec], writers: int, slots: int) -> int:
        """Bytes that a table of this kind takes."""
        layout = Layout([spec.within(writers * slots) for spec in specs])
        return aligned(_native.Table.required(writers)) + layout.nbytes

    def slot(self, index: int) -> Arrays:
        """The arrays of one slot, as views: made when it is asked for, since a table may have very many slots."""
        return {name: array[index, ...] for name, array in self.arrays.items()}

    def claim(self, writer: int, sequence: int) -> int:
        """Open the slot of ``sequence`` for writing; its flat index. Its former content can no longer be read.

        May be called again before ``push``, also by a successor of a dead writer: the content is then written anew.

        Raises:
            ValueError: ``sequence`` is not the writer's next one, which is ``written(writer)``.
        """
        return self._words.claim(writer, sequence)

    def push(self, writer: int, sequence: int) -> None:
        """Make the claimed slot readable.

        Raises:
            FencedError: ``sequence`` is not claimed, or was pushed before.
        """
        self._words.push(writer, sequence)

    def sign(self, index: int, sequence: int, parts: Sequence[Array]) -> None:
        """Keep a checksum of these parts of a slot, before it is pushed; nothing where there are no checksums.

        Args:
            index: of the slot.
            sequence: that it holds.
            parts: contiguous arrays of it; the same ones in the same order whenever it is checked.
        """
        if self.checksums is not None:
            self.checksums[index] = _native.checksum(parts, sequence, index)

    def unaltered(self, index: int, sequence: int, parts: Sequence[Array]) -> bool:
        """True if these parts of a slot are as they were when it was signed, or there are no checksums."""
        return self.checksums is None or int(self.checksums[index]) == _native.checksum(parts, sequence, index)

    def written(self, writer: int) -> int:
        """How many slots the writer has pushed: sequences below are whole, until they are overwritten."""
        return self._words.written(writer)

    def claimed(self, writer: int) -> int:
        """How many slots the writer has claimed: ``written``, or one more."""
        return self._words.claimed(writer)

    def index(self, writer: int, sequence: int) -> int:
        """Flat index of the slot that holds ``sequence``: ``writer * slots + sequence % slots``."""
        return self._words.index(writer, sequence)

    def first(self, writer: int) -> int:
        """The oldest sequence that can be read, as far as is known: a moment later it may be overwritten."""
        return self._words.first(writer)

    def oldest(self, writer: int) -> int:
        """The oldest sequence that was not overwritten up to now: of what was copied before, what is from there on."""
        return self._words.oldest(writer)

    def held(self, writer: int, below: int) -> int:
        """How many slots below a sequence are drawn from: those there are, but for the one that is filled next."""
        return max(0, below - max(self.first(writer), below - (self.slots - 1)))

    def begin(self, writer: int, sequence: int, first: int) -> None:
        """Go on at ``sequence``, for a writer whose slots from ``first`` on were restored or are still there.

        Before anybody else looks at the table. May be repeated by who takes over from one that died in it.
        """
        self._words.begin(writer, sequence, first)
