"""A node's ends of streams, tables and boards. An end knows its owner, and rings the bells of the other end."""

from collections.abc import Callable, Mapping, Sequence

from penstock.errors import FencedError
from penstock.memory.board import Board as BoardMemory
from penstock.memory.counters import Cell, Counters
from penstock.memory.stream import Stream as StreamMemory
from penstock.memory.table import Table as TableMemory
from penstock.program.graph import Table
from penstock.replay.contents import sampled_parts
from penstock.replay.priorities import enter
from penstock.replay.sum_tree import SumTrees
from penstock.types import Array

__all__ = ["BoardEnd", "StreamEnd", "TableEnd"]


class StreamEnd:
    """One node's end of a stream.

    Args:
        memory: the structure.
        owner: this life of the node.
        handed_on: counts the slots that this node has pushed and released.
        wake: rings the bells of the other end.
    """

    def __init__(self, memory: StreamMemory, owner: int, *, handed_on: Cell, wake: Callable[[], None]) -> None:
        self._memory = memory
        self._owner = owner
        self._handed_on = handed_on
        self._wake = wake
        self.slots = memory.slots
        self.arrays = memory.arrays
        self.slot = memory.slot
        self.free = memory.free
        self.ready = memory.ready
        self.sequence = memory.sequence
        self.written = memory.written

    def claim(self, sequence: int) -> int | None:
        """Claim a free slot: its index, or ``None`` if no slot is free."""
        return self._memory.claim(self._owner, sequence)

    def push(self, index: int) -> None:
        """Hand the slot to the readers."""
        self._memory.push(index, self._owner)
        self._handed_on.add()
        self._wake()

    def take(self) -> int | None:
        """Take a slot that is ready: its index, or ``None`` if none is."""
        return self._memory.take(self._owner)

    def release(self, index: int) -> None:
        """Give the slot back to the writers."""
        self._memory.release(index, self._owner)
        self._handed_on.add()
        self._wake()

    def release_consumed(self, sequences: Sequence[int]) -> int:
        """Release the slots that an earlier life has committed; returns how many."""
        freed = self._memory.release_consumed(self._owner, sequences)
        self._wake()
        return freed


class TableEnd:
    """One writer's end of a table. It works like a stream's writing end, but readers release no slots.

    Args:
        memory: the structure.
        trees: hold the priorities of the rows; ``None`` if rows have none.
        edge: the writers, the readers and the rate limiter.
        node: the writer that owns this end.
        counters: of all nodes. It reads ``collected`` and ``paid``, and adds to ``handed_on``.
        wake: rings the bells of the readers.
    """

    def __init__(
        self,
        memory: TableMemory,
        trees: SumTrees | None,
        edge: Table,
        node: str,
        *,
        counters: Counters,
        wake: Callable[[], None],
    ) -> None:
        self._memory = memory
        self._ranking = edge.ranking
        self._writer = edge.writers.index(node)
        self._writers = len(edge.writers)
        self._limiter = edge.limiter
        share = len(edge.writers) // edge.shards
        shard = self._writer // share
        first = shard * share
        self._tree = None if trees is None else trees.shard(shard)
        self._first_slot = first * memory.slots
        # Only the writers of its own shard. The learner notes as paid the share of one shard. So all shards take the
        # same number of rows.
        self._collected = [counters.cell(name, "collected") for name in edge.writers[first : first + share]]
        self._paid = [counters.cell(name, "paid") for name in edge.readers]
        self._handed_on = counters.cell(node, "handed_on")
        self._wake = wake
        self.slots = memory.slots
        self.slot = memory.slot

    def free(self) -> int:
        """1, or 0 while the rate limiter waits for gradient steps."""
        inserted = sum(cell.get() for cell in self._collected)
        return int(self._limiter.may_insert(inserted, max(cell.get() for cell in self._paid)))

    def claim(self, sequence: int) -> int | None:
        """Claim the next slot of the writer's ring. A skipped rollout leaves no gap there: ``sequence`` is not used."""
        del sequence
        if self.free() == 0:
            return None
        return self._memory.claim(self._writer, self._memory.written(self._writer))

    def push(self, index: int, known: Array | None = None) -> None:
        """Hand the slot to the readers, with priorities for its rows and a checksum, where the table has these.

        Args:
            index: of the slot.
            known: as for `penstock.replay.priorities.enter`.

        Raises:
            FencedError: the slot is not the one that was claimed last.
        """
        sequence = self._memory.written(self._writer)
        if self._memory.index(self._writer, sequence) != index:
            raise FencedError(f"slot {index} is not the one that this writer fills")
        if self._tree is not None and self._ranking is not None:
            # Before the push. If the writer dies in between, the priorities belong to rows that nobody can read yet.
            slot = self._memory.slot(index)
            enter(self._tree, self._ranking, slot, index - self._first_slot, sequence, known=known)
        if self._memory.checksums is not None:
            self._memory.sign(index, sequence, sampled_parts(self._memory, index))
        self._memory.push(self._writer, sequence)
        self._handed_on.add()
        self._wake()

    def written(self) -> dict[int, int]:
        """Sequence -> slot, of the last pushed slot only. Its header says where each lane goes on."""
        last = self._memory.written(self._writer) - 1
        if last < 0:
            return {}
        return {last * self._writers + self._writer: self._memory.index(self._writer, last)}


class BoardEnd:
    """One node's end of a board.

    Args:
        memory: the structure.
        wake: rings its readers' bells.
        max_lag: how many versions a reader may be behind its own count of rollouts; ``None``: any number.
    """

    def __init__(self, memory: BoardMemory, wake: Callable[[], None], max_lag: int | None) -> None:
        self._memory = memory
        self._max_lag = max_lag
        self._wake = wake
        self.version = memory.version
        self.publication = memory.publication
        self.read = memory.read

    def publish(self, arrays: Mapping[str, Array], version: int) -> None:
        """Make ``arrays`` the latest value."""
        self._memory.publish(arrays, version)
        self._wake()

    def fresh(self, rollout: int) -> bool:
        """True if a version is there that is new enough to begin this rollout with."""
        version = self._memory.version()
        return version >= 0 and (self._max_lag is None or version >= rollout - self._max_lag)
