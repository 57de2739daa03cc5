"""Puts back what a table held when a checkpoint was written. Learns nothing."""

from pathlib import Path

import numpy as np

from penstock.errors import CheckpointError
from penstock.experiments.checkpoints import load_table
from penstock.memory.table import Table
from penstock.replay.contents import restore
from penstock.replay.sum_tree import SumTree
from penstock.types import Array

__all__ = ["refill"]


def refill(table: Table, tree: SumTree | None, checkpoint: Path | None) -> Array:
    """Put back what the table held, where a checkpoint kept that; how many slots each writer then has, ``[writers]``.

    A table in a file of its own has what is left of it already.

    Raises:
        CheckpointError: it does not fit the table.
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
