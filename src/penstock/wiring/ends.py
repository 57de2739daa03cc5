"""A node's ends of streams, tables and boards: the structure, with the owner and the other end's bells filled in."""

from collections.abc import Callable, Mapping, Sequence

from penstock.errors import FencedError
from penstock.memory.board import Board as BoardMemory
from penstock.memory.counters import Cell, Counters
from penstock.memory.stream import Stream as StreamMemory
from penstock.memory.table import Table as TableMemory
from penstock.program.graph import Table
from penstock.replay.priorities import enter
from penstock.replay.sum_tree import SumTree
from penstock.types import Array

__all__ = ["BoardEnd", "StreamEnd", "TableEnd"]


class StreamEnd:
    """One node's end of a stream.

    Args:
        memory: the structure.
        owner: this life of the node.
        former: its earlier lives.
        handed_on: counts the slots that it has pushed and released.
        wake: rings the other end's bells.
    """

    def __init__(
        self, memory: StreamMemory, owner: int, former: tuple[int, ...], *, handed_on: Cell, wake: Callable[[], None]
    ) -> None:
        self._memory = memory
        self._owner = owner
        self._former = former
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
        """A free slot as this node's own; ``None`` if there is none."""
        return self._memory.claim(self._owner, sequence)

    def push(self, index: int) -> None:
        """Hand the slot to the readers."""
        self._memory.push(index, self._owner)
        self._handed_on.add()
        self._wake()

    def take(self) -> int | None:
        """A waiting slot as this node's own; ``None`` if there is none."""
        return self._memory.take(self._owner)

    def release(self, index: int) -> None:
        """Give the slot back to the writers."""
        self._memory.release(index, self._owner)
        self._handed_on.add()
        self._wake()

    def release_consumed(self, sequences: Sequence[int]) -> int:
        """Give back the slots that an earlier life has used up; how many there were."""
        freed = self._memory.release_consumed(self._owner, sequences)
        self._wake()
        return freed

    def returned(self) -> list[int]:
        """The slots that earlier lives were reading."""
        return self._memory.returned(self._former)


class TableEnd:
    """One writer's end of a table: a stream writer like any other, whose slots nobody has to give back.

    Args:
        memory: the structure.
        tree: ranks its rows; ``None`` where they are not ranked.
        edge: who writes, who reads, and when collecting waits for learning.
        node: which of the writers this is.
        counters: of all nodes: what was collected and paid is read, what is handed on counted.
        wake: rings the readers' bells.
    """

    def __init__(
        self,
        memory: TableMemory,
        tree: SumTree | None,
        edge: Table,
        node: str,
        *,
        counters: Counters,
        wake: Callable[[], None],
    ) -> None:
        self._memory = memory
        self._tree = tree
        self._ranking = edge.ranking
        self._writer = edge.writers.index(node)
        self._writers = len(edge.writers)
        self._limiter = edge.limiter
        self._collected = [counters.cell(name, "collected") for name in edge.writers]
        self._paid = [counters.cell(name, "paid") for name in edge.readers]
        self._handed_on = counters.cell(node, "handed_on")
        self._wake = wake
        self.slots = memory.slots
        self.slot = memory.slot

    def free(self) -> int:
        """1, or 0 while gradient steps have to be done first."""
        inserted = sum(cell.get() for cell in self._collected)
        return int(self._limiter.may_insert(inserted, max(cell.get() for cell in self._paid)))

    def claim(self, sequence: int) -> int | None:
        """The next slot of the writer's ring, whatever the sequence: a ring has no gaps, where rollouts are skipped."""
        del sequence
        if self.free() == 0:
            return None
        return self._memory.claim(self._writer, self._memory.written(self._writer))

    def push(self, index: int) -> None:
        """Hand the slot to the readers, its rows ranked.

        Raises:
            FencedError: the slot is not the one that was claimed last.
        """
        sequence = self._memory.written(self._writer)
        if self._memory.index(self._writer, sequence) != index:
            raise FencedError(f"slot {index} is not the one that this writer fills")
        if self._tree is not None and self._ranking is not None:
            # Before the push: a writer that dies in between leaves priorities of rows that cannot be read yet.
            enter(self._tree, self._ranking, self._memory.slot(index), index, sequence)
        self._memory.push(self._writer, sequence)
        self._handed_on.add()
        self._wake()

    def written(self) -> dict[int, int]:
        """Sequence -> slot of the last one that was pushed: what is behind it is in it."""
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
        self.read = memory.read

    def publish(self, arrays: Mapping[str, Array], version: int) -> None:
        """Make ``arrays`` the latest value."""
        self._memory.publish(arrays, version)
        self._wake()

    def fresh(self, rollout: int) -> bool:
        """True if a version is there that is new enough to begin this rollout with."""
        version = self._memory.version()
        return version >= 0 and (self._max_lag is None or version >= rollout - self._max_lag)
