"""Intake: which slots of a table a learner takes note of next. Looks at what identifies them, never at their data."""

from collections.abc import Sequence
from typing import Literal

from penstock.errors import PenstockError
from penstock.memory.table import Table
from penstock.types import Array, Arrays

__all__ = ["Intake", "rows_to_sample"]


def rows_to_sample(table: Table, written: Sequence[int] | Array) -> int:
    """How many rows there are to draw from; ``written`` says how many slots of each writer count.

    All but one of a ring, which may be filled at the time. Fewer than were collected, if a resume did not find all.
    """
    slots = sum(table.held(writer, int(count)) for writer, count in enumerate(written))
    rows, lanes = map(int, table.arrays["valid"].shape[1:])
    return slots * (rows - 1) * lanes


class Intake:
    """Follows the writers of a table from where a commit left off.

    Args:
        table: where they write.
        order: ``by_lane``: one slot of every writer; ``by_arrival``: what is there.
    """

    def __init__(self, table: Table, order: Literal["by_lane", "by_arrival"]) -> None:
        self._table = table
        self._order = order

    def waiting(self, taken: Array) -> int:
        """How many slots could be taken now, behind ``taken`` int64 ``[writers]``: by lane all writers' or none."""
        ahead = [self._table.written(writer) - int(taken[writer]) for writer in range(self._table.writers)]
        return min(ahead) if self._order == "by_lane" else sum(ahead)

    def take(self, taken: Array) -> Sequence[Arrays]:
        """The next slot of each writer that has one, in lane order; ``taken`` is counted on.

        Raises:
            PenstockError: a writer has overwritten what was not taken yet: its table's limiter is at fault.
        """
        slots = []
        for writer in range(self._table.writers):
            sequence = int(taken[writer])
            if self._table.written(writer) > sequence:
                slot = self._table.slot(self._table.index(writer, sequence))
                if self._table.claimed(writer) - self._table.slots > sequence:
                    raise PenstockError(f"writer {writer} was {self._table.slots} slots ahead of what was learned")
                slots.append(slot)
                taken[writer] += 1
        return slots
