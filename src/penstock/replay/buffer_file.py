"""The content of a buffer in one file, a zip of NumPy arrays. Nothing is pickled. Starts no process.

``buffer.json`` has the settings. ``<writer>/<name>.npy`` are the `contents` of each writer's ring, with the priorities
of its rows.
"""

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.memory.table import Table
from penstock.replay.contents import contents, restore
from penstock.replay.sum_tree import SumTree
from penstock.saved_runs.durable import PARTIAL, move_file
from penstock.types import Array, Arrays

__all__ = ["read_rings", "read_settings", "write_buffer"]

_SETTINGS = "buffer.json"
_FORMAT = 1
_PRIORITY, _LARGEST = "priority", "largest"


def write_buffer(path: Path, settings: Mapping[str, Any], table: Table, tree: SumTree | None) -> None:
    """Write the rows that can be sampled, whole or not at all. Writers may go on meanwhile.

    Args:
        path: of the file. One that is there is replaced.
        settings: JSON values, for `read_settings`.
        table: its rows.
        tree: their priorities; ``None``: they have none.

    Raises:
        OSError: it cannot be written; an older file is unchanged.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr(_SETTINGS, json.dumps({"format": _FORMAT, **settings}))
                for writer in range(table.writers):
                    for name, values in _ring(table, writer, tree).items():
                        # In parts: an array may be larger than what is left of the memory.
                        with archive.open(f"{writer}/{name}.npy", "w", force_zip64=True) as member:
                            np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        move_file(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings that `write_buffer` was given.

    Raises:
        UsageError: the file cannot be read, or is none of these.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = json.loads(archive.read(_SETTINGS))
        if found.pop("format") != _FORMAT:
            raise refused(path, "another version of penstock has written it")
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, AttributeError) as error:
        raise refused(path, str(error)) from None
    return dict(found)


def read_rings(path: Path, table: Table, tree: SumTree | None) -> None:
    """Fill an empty table with the rows of a file, and a tree with their priorities.

    Raises:
        UsageError: the file cannot be read, is damaged, or holds other rows.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for writer in range(table.writers):
                _fill(table, writer, tree, _arrays(archive, writer))
    except (OSError, zipfile.BadZipFile, ValueError, KeyError) as error:
        raise refused(path, str(error)) from None


def refused(path: Path, why: str) -> UsageError:
    """The error for a file that cannot be used."""
    return UsageError(f"{path} cannot be used as a replay buffer: {why}")


def _ring(table: Table, writer: int, tree: SumTree | None) -> Arrays:
    """What the ring of one writer holds: no other writer needs to have as many slots."""
    ring = table.shard(writer, table.writers)
    found = contents(ring, [ring.written(0)])
    if tree is not None:
        found[_PRIORITY] = tree.read(_flat_rows(table, writer, found))
        found[_LARGEST] = tree.largest()
    return found


def _fill(table: Table, writer: int, tree: SumTree | None, found: Arrays) -> None:
    restore(table.shard(writer, table.writers), found)
    if tree is None:
        return
    rows, end = _flat_rows(table, writer, found), int(found["sequence"])
    for sequence, flat, priorities in zip(range(end - len(rows), end), rows, found[_PRIORITY], strict=True):
        tree.set(int(flat[0]), sequence, priorities)
    # The largest of all writers: each file has it in every ring.
    tree.put_largest(np.maximum(found[_LARGEST], tree.largest()))


def _flat_rows(table: Table, writer: int, found: Arrays) -> Array:
    """The flat rows of the slots in ``found``, the oldest slot first: int64 ``[slots, rows of a slot]``."""
    end, count = int(found["sequence"]), len(found["valid"])
    size = table.arrays["valid"][0].size
    places = [table.index(writer, sequence) for sequence in range(end - count, end)]
    rows: Array = np.array(places, np.int64)[:, None] * size + np.arange(size)
    return rows


def _arrays(archive: zipfile.ZipFile, writer: int) -> Arrays:
    found: Arrays = {}
    begin = f"{writer}/"
    for name in archive.namelist():
        if name.startswith(begin):
            with archive.open(name) as member:
                found[name.removeprefix(begin).removesuffix(".npy")] = np.lib.format.read_array(member)
    return found
