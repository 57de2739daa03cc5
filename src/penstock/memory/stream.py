"""A stream: slots that go from writer to reader and back. Rings no bell. Knows no process: owners are numbers.

    free --claim--> writing --push--> ready --take--> reading --release--> free

Data is written and read in place; only indices travel. Any process may die at any instruction. The supervisor then
fences it (kills *and* reaps it) and calls ``recover(owner)``.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from penstock.memory import _native
from penstock.memory.layout import Layout, aligned
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["Recovered", "Stream"]

_READY, _READING = 2, 3
# The numbers of native/memory/slots.hpp.


class Recovered(NamedTuple):
    """The slots that a dead owner held."""

    freed: int
    """Number of slots that it was writing. They are free again."""
    returned: int
    """Number of slots that it was reading. They are ready again."""


class Stream:
    """Slots of named arrays in shared memory.

    ``owner`` is a life of a node: a number below 2^20 that is never used again within a run. ``sequence`` numbers a
    slot's content: below 2^40, rising for each writer, and unique within the stream (say ``rollout * writers +
    writer``). Commit records name the slots that they consumed by their sequences.

    Attributes:
        arrays: field -> ``[slots, ...]``: all slots as one array.
        slots: number of slots.
    """

    def __init__(self, bytes: Array, specs: Sequence[ArraySpec], slots: int) -> None:  # noqa: A002
        """Attach to ``required(specs, slots)`` bytes, uint8, that start at a multiple of 64 and were zero at first.

        Args:
            bytes: the memory.
            specs: the arrays of one slot.
            slots: number of slots.
        """
        self.slots = slots
        self._words = _native.Slots(bytes, slots)
        layout = Layout([spec.within(slots) for spec in specs])
        self.arrays: Arrays = layout.views(bytes, _native.Slots.required(slots))
        self._views: list[Arrays] = [
            {name: array[index, ...] for name, array in self.arrays.items()} for index in range(slots)
        ]

    @staticmethod
    def required(specs: Sequence[ArraySpec], slots: int) -> int:
        """Bytes that such a stream takes."""
        return aligned(_native.Slots.required(slots)) + Layout([spec.within(slots) for spec in specs]).nbytes

    def slot(self, index: int) -> Arrays:
        """The arrays of one slot, as views. The same dict each time: do not change it."""
        return self._views[index]

    def claim(self, owner: int, sequence: int) -> int | None:
        """Claim a free slot for ``owner`` to write. Returns its index, or ``None`` if no slot is free.

        Raises:
            ResourceError: ``owner`` or ``sequence`` is too large.
        """
        return self._words.claim(owner, sequence)

    def push(self, index: int, owner: int) -> None:
        """Hand a written slot to the readers.

        Raises:
            FencedError: ``owner`` is not writing the slot: it was recovered, or never claimed.
        """
        self._words.push(index, owner)

    def take(self, owner: int) -> int | None:
        """Take the ready slot with the smallest sequence. Returns its index, or ``None`` if no slot is ready.

        ``owner`` reads it from now on. First-in-first-out for each writer; no order between writers.
        """
        return self._words.take(owner)

    def release(self, index: int, owner: int) -> None:
        """Give a read slot back to the writers.

        Raises:
            FencedError: ``owner`` is not reading the slot.
        """
        self._words.release(index, owner)

    def recover(self, owner: int) -> Recovered:
        """Take back the slots of ``owner``, after its process was killed and reaped. May be repeated."""
        return Recovered(*self._words.recover(owner))

    def release_consumed(self, owner: int, sequences: Sequence[int]) -> int:
        """Free the slots that hold one of ``sequences`` and are ready or read by ``owner``. Returns their number.

        A learner calls this after its commit, and its successor when it takes over, with the sequences that the commit
        record names as consumed.
        """
        return self._words.release_consumed(owner, sequences)

    def sequence(self, index: int) -> int:
        """The sequence of the slot's content. Exact for the slot's owner only."""
        return self._words.word(index)[2]

    def written(self) -> dict[int, int]:
        """Sequence -> slot, for slots that are pushed and not yet released. May be out of date at once: check again."""
        words = (self._words.word(index) for index in range(self.slots))
        return {sequence: index for index, (state, _, sequence) in enumerate(words) if state in {_READY, _READING}}

    def returned(self, owners: Collection[int]) -> list[int]:
        """The slots that ``owners`` were reading when they died, and that no reader has taken since."""
        words = (self._words.word(index) for index in range(self.slots))
        return [index for index, (state, owner, _) in enumerate(words) if state == _READY and owner in owners]

    def ready(self) -> int:
        """Number of slots that wait for a reader."""
        return self._words.ready()

    def free(self) -> int:
        """Number of slots that wait for a writer."""
        return self._words.free()
