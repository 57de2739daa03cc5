"""Gives the memory of slots of a table back to the system, once their content lies elsewhere. Decides for no slot.

Each field of a table is one array of all slots. The system takes whole pages only, and a page may hold many slots of a
small field. So each field is given back in parts of ``PART_BYTES``. The first and the last page of a part may stay.
"""

from collections.abc import Callable, Iterator

from penstock.errors import PenstockError
from penstock.memory.table import Table
from penstock.types import Array

__all__ = ["PART_BYTES", "TablePages"]

PART_BYTES = 1 << 18
"""Least bytes of a field that are given back at once: 64 pages, of which two at most stay."""


class TablePages:
    """The memory of a table's slots.

    Args:
        table: its slots lie in memory that can be given back.
        give_back: takes a contiguous part of this memory, as `penstock.memory.segment.Segment.give_back` does.
    """

    def __init__(self, table: Table, give_back: Callable[[Array], object]) -> None:
        self._table = table
        self._give_back = give_back
        self._kept: dict[tuple[int, str], int] = {}
        """Writer and field -> the first sequence whose memory was not given back."""

    def let_go(self, writer: int, below: int) -> None:
        """Give back the memory of a writer's slots below a sequence, for each field that has ``PART_BYTES`` of it.

        Call this only if nobody reads these slots any more. The writer may go on meanwhile. The older half of its ring
        is left alone, because the writer fills that half next.

        Raises:
            PenstockError: the writer has gone half round its ring during the call. Its rate limiter is at fault.
            ResourceError: the system takes no memory back.
        """
        table = self._table
        oldest = table.claimed(writer) - table.slots // 2
        for name, array in table.arrays.items():
            first = max(oldest, self._kept.get((writer, name), 0))
            if (below - first) * (array.nbytes // len(array)) < PART_BYTES:
                continue
            for part in self._runs(writer, first, below):
                self._give_back(array[part])
            if table.oldest(writer) > first:
                raise PenstockError(f"writer {writer} was half a ring of slots ahead of what was learned")
            self._kept[writer, name] = below

    def _runs(self, writer: int, first: int, below: int) -> Iterator[slice]:
        """The slots of these sequences as runs of flat indices: the ring may go round once."""
        while first < below:
            index = self._table.index(writer, first)
            count = min(below - first, (writer + 1) * self._table.slots - index)
            yield slice(index, index + count)
            first += count
