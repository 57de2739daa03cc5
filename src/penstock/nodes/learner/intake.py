"""What a learner knows of its table: which slots were there at first, which are new, how many rows they hold.

Reads only what identifies a slot. Learns nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from penstock.errors import CheckpointError, PenstockError
from penstock.memory.table import Table
from penstock.replay.contents import restore
from penstock.replay.sum_tree import Ranks
from penstock.saved_runs.checkpoints import load_table
from penstock.types import Array, Arrays

__all__ = ["Intake", "refill", "rows_to_sample"]


def refill(table: Table, tree: Ranks | None, checkpoint: Path | None) -> Array:
    """Fill a table from the copy in a checkpoint. Returns the number of slots of each writer, ``[writers]``.

    A table in a file of its own already holds its rows, and its checkpoints have no copy: nothing is filled then.

    Raises:
        CheckpointError: the copy does not fit the table.
    """
    held = None if checkpoint is None else load_table(checkpoint)
    if held is not None:
        try:
            restore(table, held, tree)
        except ValueError as error:
            raise CheckpointError(
                f"the table of checkpoint {checkpoint} does not fit this run: {error}; put the settings back to what "
                "the run began with"
            ) from None
    return np.array([table.written(writer) for writer in range(table.writers)], np.int64)


def rows_to_sample(table: Table, written: Sequence[int] | Array, shards: int = 1) -> int:
    """How many rows can be sampled; ``written`` is the number of slots of each writer that count.

    - One slot of each ring is left out: its writer may be filling it.
    - After a resume there may be fewer rows than were collected, because some rows of the table's file were not found.
    - If there are several shards, each counts as many rows as the one with the fewest.
    """
    slots = np.array([table.held(writer, int(count)) for writer, count in enumerate(written)])
    rows, lanes = map(int, table.arrays["valid"].shape[1:])
    return int(slots.reshape(shards, -1).sum(1).min()) * shards * (rows - 1) * lanes


class Intake:
    """Takes note of a table's new slots, from the last commit on.

    Args:
        table: the table.
        order: ``by_lane``: one slot of every writer at a time; ``by_arrival``: whatever has arrived.
    """

    def __init__(self, table: Table, order: Literal["by_lane", "by_arrival"]) -> None:
        self._table = table
        self._order = order

    def waiting(self, taken: Array) -> int:
        """How many slots wait behind ``taken``, int64 ``[writers]``. By lane: how many of every writer."""
        ahead = [self._table.written(writer) - int(taken[writer]) for writer in range(self._table.writers)]
        return min(ahead) if self._order == "by_lane" else sum(ahead)

    def take(self, taken: Array) -> Sequence[Arrays]:
        """The next slot of each writer that has one, in lane order. Adds them to ``taken``.

        Raises:
            PenstockError: a writer has overwritten a slot that was not taken yet. The table's rate limiter is at fault.
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
