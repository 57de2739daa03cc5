"""Prepares the file of a table when a run begins or is resumed: it keeps the rows of the run's checkpoint.

A checkpoint stores the file's numbering and, for each writer, the end of its ring (`marked`). Rows that were
overwritten after the checkpoint are left out. Rows that were written after it are dropped and collected again.
Starts no process and prints nothing.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import ResourceError
from penstock.memory.table import Table
from penstock.replay.contents import sampled_parts, transfer
from penstock.replay.sum_tree import Ranks
from penstock.replay.table_file import (
    Header,
    Rings,
    create,
    mapped,
    read_header,
    refusal,
    reserve_checksums,
    write_header,
)
from penstock.saved_runs.checkpoints import TABLE, Checkpoint
from penstock.saved_runs.durable import PARTIAL

__all__ = ["MARK", "Found", "begin", "marked", "sound_from"]

MARK = "replay"
"""The key of the facts about the file in the manifest of a checkpoint."""


class Found(NamedTuple):
    """The rows that a run finds in its table."""

    rows: int = 0
    """Number of rows at the checkpoint."""
    left_out: int = 0
    """How many of these rows the table no longer has."""
    why: str = ""
    """Why the table has none of them. Empty if the file could be used."""
    same_ranks: bool = True
    """The priorities are those of the checkpoint."""
    altered: int = 0
    """How many rows are left out because their slot, or a newer one, was altered after it was written."""


class _Place(NamedTuple):
    """The state of a table when a checkpoint was written."""

    update: int
    run: str | None
    numbering: str | None
    taken: Sequence[int]
    """For each writer: slots below this sequence belong to the checkpoint."""
    first: Sequence[int]
    """For each writer: the oldest of these slots."""
    left_out: int = 0
    """Rows that were missing before this resume, too."""
    why: str = ""
    """Why all rows were missing then."""


def marked(path: Path, table: Table) -> dict[str, Any]:
    """The facts about the file for a checkpoint's manifest. The learner's record adds ``taken``."""
    header = read_header(path)
    first = [table.first(writer) for writer in range(table.writers)]
    return {"run": header.run, "numbering": header.numbering, "first": first}


def begin(path: Path, rings: Rings, checkpoint: Checkpoint | None) -> Found:
    """Make sure that the file exists, has its space on the disk, and holds what is left of the checkpoint's rows.

    Args:
        path: the file.
        rings: the layout that the run needs.
        checkpoint: the run goes on from here. ``None``: it begins.

    Raises:
        ResourceError: the disk has no space for it.
        RunFolderError: the existing file is truncated, has another layout or belongs to another run.
    """
    if checkpoint is None:
        place = _Place(0, None, None, [0] * rings.writers, [0] * rings.writers)
        return _empty(path, rings, place, "")
    mark = checkpoint.manifest.get(MARK) or {}
    taken, first = checkpoint.arrays["taken"].tolist(), mark.get("first", ())
    place = _Place(checkpoint.manifest["update"], mark.get("run"), mark.get("numbering"), taken, first)
    if TABLE in checkpoint.manifest["files"]:
        # The learner fills the table from the checkpoint's own copy.
        return _empty(path, rings, place, "")
    if not path.exists():
        return _empty(path, rings, place, f"there is no {path.name}")
    header = read_header(path)
    if place.run not in {None, header.run}:
        raise refusal(path, "it is of another run")
    place = place._replace(run=header.run)
    if not header.whole:
        return _empty(path, rings, place, "the machine was restarted while it was written to")
    if header.numbering != place.numbering:
        if (header.update, header.followed) != (place.update, place.numbering):
            return _empty(path, rings, place, "it was laid out anew after the checkpoint")
        place = place._replace(taken=header.taken, first=header.first, left_out=header.left_out, why=header.why)
    return _go_on(path, rings, header, place)


def _empty(path: Path, rings: Rings, place: _Place, why: str) -> Found:
    """Make a new, empty file."""
    nothing = (0,) * rings.writers
    create(path, _header(rings, place, taken=nothing, first=nothing, why=why))
    return Found(why=why)


def _header(rings: Rings, place: _Place, **facts: Any) -> Header:  # noqa: ANN401 - fields of their own types
    run = place.run or secrets.token_hex(16)
    return Header(rings, run, secrets.token_hex(16), place.update, place.numbering, signed=True, **facts)


def _go_on(path: Path, rings: Rings, header: Header, place: _Place) -> Found:
    """Keep the rows of the checkpoint that the file still holds, in place or in a new layout."""
    if not header.signed:
        reserve_checksums(path, header)
    table, tree = header.rings.structures(mapped(path, header.rings))
    ends, slots = place.taken, table.slots
    if any(table.written(writer) < end for writer, end in enumerate(ends)):
        return _empty(path, rings, place, "the run went on from an earlier checkpoint since")
    firsts = [max(first, end - (slots - 1)) for first, end in zip(place.first, ends, strict=True)]
    row = header.rings.turn_rows // table.writers
    rows = place.left_out + row * sum(end - first for first, end in zip(firsts, ends, strict=True))
    at_end = header.reranked != place.update and all(table.claimed(writer) == end for writer, end in enumerate(ends))
    # Written before anything in the file changes.
    reranked = -1 if at_end else place.update
    if not header.signed:
        _sign(table)
    write_header(path, replace(header, reranked=reranked, signed=True, settled=False))
    there = [
        max(first, min(end, table.first(writer))) for writer, (first, end) in enumerate(zip(firsts, ends, strict=True))
    ]
    sound = [sound_from(table, writer, first, ends[writer]) for writer, first in enumerate(there)]
    altered = row * (sum(sound) - sum(there))
    if header.rings == rings:
        _go_back(table, tree, sound, ends)
        kept = row * (sum(ends) - sum(sound))
    else:
        kept = _lay_out(path, rings, (table, tree), place, sound, rows=rows, reranked=reranked)
    return Found(rows, rows - kept, place.why, at_end or tree is None, altered)


def _sign(table: Table) -> None:
    """Sign all slots of a file of an earlier version, which has no checksums: its slots are taken to be unaltered."""
    for writer in range(table.writers):
        for sequence in range(table.first(writer), table.written(writer)):
            index = table.index(writer, sequence)
            table.sign(index, sequence, sampled_parts(table, index))


def sound_from(table: Table, writer: int, first: int, end: int) -> int:
    """The first sequence in ``first .. end`` from which on all slots of a writer are unaltered."""
    for sequence in range(end - 1, first - 1, -1):
        index = table.index(writer, sequence)
        if not table.unaltered(index, sequence, sampled_parts(table, index)):
            return sequence + 1
    return first


def _go_back(table: Table, tree: Ranks | None, sound: Sequence[int], ends: Sequence[int]) -> None:
    """Take each writer back to ``ends``. Later slots are forgotten, and so are slots older than ``sound``.

    It can be repeated after a crash, because no writer's first slot moves to an earlier sequence.
    """
    size = table.arrays["valid"][0].size
    for writer, end in enumerate(ends):
        claimed, first = table.claimed(writer), min(end, max(sound[writer], table.first(writer)))
        for sequence in range(max(end, claimed - table.slots), claimed):
            if tree is not None:
                tree.set(table.index(writer, sequence) * size, sequence, np.zeros(size))
        table.begin(writer, end, first)
    if tree is not None:
        # A process that was killed may have left sums that are out of date.
        tree.recover()


def _lay_out(
    path: Path,
    rings: Rings,
    held: tuple[Table, Ranks | None],
    place: _Place,
    sound: Sequence[int],
    *,
    rows: int,
    reranked: int,
) -> int:
    """Replace the file by one for another number of writers or slots. Returns how many of ``rows`` it holds."""
    partial, empty = path.with_name(path.name + PARTIAL), _header(rings, place)
    try:
        create(partial, empty)
        table, ranks = rings.structures(mapped(partial, rings))
        count = transfer(held[0], sound, place.taken, held[1], table, ranks)
        kept, end = rings.turn_rows * count, max(place.taken)
        taken, first = (end,) * rings.writers, (end - count,) * rings.writers
        full = replace(empty, taken=taken, first=first, left_out=rows - kept, why=place.why, reranked=reranked)
        write_header(partial, full)
        partial.replace(path)
    except ValueError as error:
        raise refusal(path, f"it is of another layout: {error}") from None
    except ResourceError as error:
        raise ResourceError(f"to lay the replay table out anew takes a second file: {error}") from None
    finally:
        partial.unlink(missing_ok=True)
    return kept
