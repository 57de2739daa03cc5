"""Keeps the rows of one shard of a table in a file when a run ends in order, and finds them when it goes on.

A file belongs to one checkpoint. A run that goes on from another one finds nothing in it. Starts no process.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from penstock.errors import RunFolderError
from penstock.memory.table import Table
from penstock.replay.contents import transfer
from penstock.replay.resumed import sound_from
from penstock.replay.sum_tree import SumTree
from penstock.replay.table_file import Header, Rings, create, mapped, read_header, settle, write_header
from penstock.saved_runs.durable import PARTIAL

__all__ = ["ShardMark", "find_shard", "keep_shard"]


class ShardMark(NamedTuple):
    """The checkpoint to which a file belongs."""

    checkpoint: str
    """What only this checkpoint has: a hash of its content."""
    update: int
    taken: tuple[int, ...]
    """For each writer of the shard: slots below this sequence belong to the checkpoint."""


def keep_shard(path: Path, shard: Table, tree: SumTree | None, mark: ShardMark) -> int:
    """Write the rows of a shard to a file, in place of an earlier one. No writer may go on meanwhile.

    Returns:
        How many slots of each writer the file holds: those below ``mark.taken``, as many as every writer has.

    Raises:
        ResourceError: the disk has too little space.
        RunFolderError: the file cannot be written, or the shard lacks slots of the checkpoint.
        OSError: its folder cannot be made.
    """
    if any(shard.written(writer) < end for writer, end in enumerate(mark.taken)):
        raise RunFolderError("it lacks slots of the checkpoint")
    rings, partial = _rings(shard, tree), path.with_name(path.name + PARTIAL)
    header = Header(rings, mark.checkpoint, mark.checkpoint, mark.update, signed=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        create(partial, header)
        table, trees = rings.structures(mapped(partial, rings))
        firsts = [shard.first(writer) for writer in range(shard.writers)]
        count, end = transfer(shard, firsts, mark.taken, tree, table, trees), max(mark.taken)
        ends = (end,) * shard.writers
        write_header(partial, replace(header, taken=ends, first=(end - count,) * shard.writers))
        settle(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def find_shard(path: Path, shard: Table, tree: SumTree | None, checkpoint: str) -> int:
    """Fill an empty shard with the rows of a file, if it belongs to this checkpoint and has the same lanes.

    Rows of a slot that was altered on the disk are left out, and so are all older ones. Arrays of a slot that no row
    has, such as other episode metrics, may differ.

    Returns:
        How many slots of each writer were found. The writers go on behind them, all at the same sequence.

    Raises:
        ResourceError: the file cannot be mapped.
    """
    try:
        header = read_header(path)
    except RunFolderError:
        # There is none, or it was cut off: its rows are not worth the run.
        return 0
    rings = _rings(shard, tree)
    fits = replace(header.rings, specs=rings.specs, slots=rings.slots) == rings
    if not (fits and header.settled and header.numbering == checkpoint):
        return 0
    table, trees = header.rings.structures(mapped(path, header.rings))
    ends = header.taken
    firsts = [sound_from(table, writer, first, ends[writer]) for writer, first in enumerate(header.first)]
    try:
        return transfer(table, firsts, ends, trees, shard, tree)
    except ValueError:
        # Its rows have another form.
        return 0


def _rings(shard: Table, tree: SumTree | None) -> Rings:
    return Rings(shard.specs, shard.writers, shard.slots, tree is not None)
