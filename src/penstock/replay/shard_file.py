"""Keeps the rows of one shard of a table in a file for a checkpoint, and finds them when a run goes on from there.

A file belongs to one checkpoint, and so does its name (`ShardName`). A run that goes on from another checkpoint finds
nothing in it. Each new file replaces those that no checkpoint needs any more. Starts no process.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from penstock.errors import RunFolderError
from penstock.memory.table import Table
from penstock.replay.contents import transfer
from penstock.replay.resumed import sound_from
from penstock.replay.sum_tree import SumTree
from penstock.replay.table_file import Header, Rings, create, mapped, read_header, settle, write_header
from penstock.saved_runs.durable import PARTIAL, move_file
from penstock.saved_runs.shard_marks import ShardName

__all__ = ["ShardMark", "find_file", "find_shard", "keep_shard"]


_NAME = re.compile(r"(shard-\d+)\.\d{8,}-[0-9a-f]+\.table")


class ShardMark(NamedTuple):
    """The checkpoint to which a file belongs."""

    checkpoint: str
    """What only this checkpoint has: `ShardName.numbering`."""
    update: int
    taken: tuple[int, ...]
    """For each writer of the shard: slots below this sequence belong to the checkpoint."""
    stay: frozenset[str] = frozenset()
    """Other files of the shard that stay: the last checkpoint names them, or the next one may."""


def keep_shard(
    path: Path, shard: Table, tree: SumTree | None, mark: ShardMark, over: Callable[[], bool] = lambda: False
) -> int:
    """Write the rows of a shard to a file, and remove the others of the same shard, save those that stay.

    The file is whole on the disk before it gets its name. Writers may go on meanwhile: slots that they overwrite are
    left out, and so are all older ones.

    Args:
        path: of the file.
        shard: the rows.
        tree: their priorities.
        mark: the checkpoint.
        over: looked at between parts of the rows. Once it is true, the file is given up.

    Returns:
        How many slots of each writer the file holds: those below ``mark.taken``, as many as every writer has.

    Raises:
        ResourceError: the disk has too little space.
        RunFolderError: the file cannot be written, is given up, or the shard lacks slots of the checkpoint.
        OSError: its folder cannot be made.
    """
    if any(shard.written(writer) < end for writer, end in enumerate(mark.taken)):
        raise RunFolderError("it lacks slots of the checkpoint")

    def check_wanted() -> None:
        if over():
            raise RunFolderError("its file was given up: the run has ended, or a later one is to be written")

    rings, partial = _rings(shard, tree), path.with_name(path.name + PARTIAL)
    header = Header(rings, mark.checkpoint, mark.checkpoint, mark.update, signed=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in _files_of(path, PARTIAL):
        # Its writer was killed.
        left.unlink(missing_ok=True)
    try:
        create(partial, header)
        table, trees = rings.structures(mapped(partial, rings))
        firsts = [shard.first(writer) for writer in range(shard.writers)]
        count = transfer(shard, firsts, mark.taken, tree, table, trees, before_part=check_wanted)
        end = max(mark.taken)
        # Race: a slot that a writer has begun to overwrite by now may be torn.
        begun = [max(shard.oldest(writer), shard.first(writer)) for writer in range(shard.writers)]
        whole = min(taken - first for taken, first in zip(mark.taken, begun, strict=True))
        if whole <= 0 < count:
            raise RunFolderError("all its slots were overwritten while they were written to the file")
        count, ends = min(count, whole), (end,) * shard.writers
        write_header(partial, replace(header, taken=ends, first=(end - count,) * shard.writers))
        settle(partial)
        move_file(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    for other in _files_of(path):
        if other.name not in {path.name, *mark.stay}:
            other.unlink(missing_ok=True)
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


def find_file(
    folder: Path, number: int, shard: Table, tree: SumTree | None, names: Sequence[ShardName]
) -> tuple[ShardName, int] | None:
    """Fill an empty shard as `find_shard` does, from the first of some files that holds rows for it.

    Args:
        folder: of the files.
        number: of the shard.
        shard: it is empty.
        tree: the priorities of its rows.
        names: of the files.

    Returns:
        The file, and its slots of each writer; ``None``: none of them holds rows.
    """
    for name in names:
        if count := find_shard(folder / name.file_of(number), shard, tree, name.numbering):
            return name, count
    return None


def _files_of(path: Path, ending: str = "") -> Iterator[Path]:
    """The files of the same shard: whole ones, or with the ending of others."""
    shard = path.name.partition(".")[0]
    for file in list(path.parent.iterdir()):
        named = _NAME.fullmatch(file.name.removesuffix(ending)) if file.name.endswith(ending) else None
        if named is not None and named[1] == shard:
            yield file


def _rings(shard: Table, tree: SumTree | None) -> Rings:
    return Rings(shard.specs, shard.writers, shard.slots, tree is not None)
