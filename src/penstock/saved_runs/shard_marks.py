"""Names the files that hold the shards of a replay table, where the rows lie with their learners. Reads none of them.

A checkpoint's manifest says which file of each shard belongs to it. While a run goes on, the checkpointer asks for
files at one board, and finds at another one which are written.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.types import Arrays, ArraySpec

__all__ = [
    "ASKED",
    "KEPT",
    "MARK_BITS",
    "NAMED",
    "ShardName",
    "asked_specs",
    "kept_arrays",
    "kept_specs",
    "names_in",
    "told",
]

NAMED = "shards"
"""The fact of a manifest that names the file of each shard."""
ASKED, KEPT = "shards_asked", "shards_kept"
"""The boards."""
MARK_BITS = 60
"""Bits of a mark: the boards carry it as an int64."""
_DIGITS = MARK_BITS // 4


class ShardName(NamedTuple):
    """A file of a shard, among all files of this shard."""

    update: int
    """Of the checkpoint for which it was written."""
    mark: int
    """A number that no other checkpoint has."""

    @property
    def numbering(self) -> str:
        """The mark as the file itself has it."""
        return f"{self.mark:0{_DIGITS}x}"

    def file_of(self, shard: int) -> str:
        """The file's own name."""
        return f"shard-{shard}.{self.update:08d}-{self.numbering}.table"


def asked_specs(writers: int) -> tuple[ArraySpec, ...]:
    """The board at which the checkpointer asks for files: the checkpoint, its mark, and its slots of each writer."""
    return ArraySpec("update", (), "int64"), ArraySpec("mark", (), "int64"), ArraySpec("taken", (writers,), "int64")


def kept_specs(shards: int) -> tuple[ArraySpec, ...]:
    """The board with the newest file of each shard, and the mark that was asked for last. Update -1: no file."""
    files = (ArraySpec(name, (shards,), "int64") for name in ("updates", "marks"))
    return ArraySpec("answered", (), "int64"), *files


def kept_arrays(names: Sequence[ShardName | None], answered: int) -> Arrays:
    """The arrays of `kept_specs`."""
    none = ShardName(-1, 0)
    updates, marks = zip(*(name or none for name in names), strict=True)
    return {
        "answered": np.array(answered, np.int64),
        "updates": np.array(updates, np.int64),
        "marks": np.array(marks, np.int64),
    }


def told(kept: Arrays) -> list[list[int] | None]:
    """What a manifest says under `NAMED`: of each shard its file, by update and mark. ``None``: it has no file."""
    both = zip(kept["updates"].tolist(), kept["marks"].tolist(), strict=True)
    return [[update, mark] if update >= 0 else None for update, mark in both]


def names_in(manifest: Mapping[str, Any], shards: int) -> list[ShardName | None]:
    """The files that a manifest names, for so many shards; for another number of shards none fits."""
    found = manifest.get(NAMED)
    if not isinstance(found, list) or len(found) != shards:
        return [None] * shards
    return [None if one is None else ShardName(*map(int, one)) for one in found]
