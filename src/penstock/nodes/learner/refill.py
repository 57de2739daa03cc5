"""Puts back what a table held when a checkpoint was written. Learns nothing."""

from pathlib import Path

from penstock.errors import CheckpointError
from penstock.experiments.checkpoints import load_table
from penstock.memory.table import Table
from penstock.replay.contents import restore
from penstock.replay.sum_tree import SumTree

__all__ = ["refill"]


def refill(table: Table, tree: SumTree | None, checkpoint: Path | None) -> int:
    """Put back what the table held, where that was kept; how many slots each writer then has.

    Raises:
        CheckpointError: it does not fit the table.
    """
    held = None if checkpoint is None else load_table(checkpoint)
    if held is None:
        return 0
    try:
        return restore(table, held, tree)
    except ValueError as error:
        raise CheckpointError(f"the table of checkpoint {checkpoint} does not fit this run: {error}") from None
