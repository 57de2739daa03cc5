"""Writes files and folders whole or not at all: under a temporary name, synced to the disk, then renamed.

A name that ends in ``.partial`` was never finished, or is being removed. ``sweep`` removes it. Knows no format.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PARTIAL", "remove_folder", "replace_folder", "sweep", "write_file", "write_folder"]

PARTIAL = ".partial"


def write_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, replacing an older file.

    Raises:
        OSError: it could not be written; the older file is unchanged.
    """
    partial = path.with_name(path.name + PARTIAL)
    _write_synced(partial, content)
    partial.replace(path)
    _sync_folder(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of ``files`` to ``path``, which must not exist.

    Raises:
        OSError: it could not be written; nothing is left at ``path``.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, content in files.items():
            _write_synced(partial / name, content)
        # The names inside must be on the disk before the rename. Otherwise a power cut could leave an empty folder.
        _sync_folder(partial)
        partial.rename(path)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _sync_folder(path.parent)


def replace_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of ``files`` to ``path``, replacing an older folder.

    Raises:
        OSError: it could not be written; the older folder is unchanged.
    """
    fresh = path.with_name(f"{path.name}.fresh{PARTIAL}")
    shutil.rmtree(fresh, ignore_errors=True)
    write_folder(fresh, files)
    # A death between these two lines leaves nothing at `path`. No portable call exchanges two folders in one step.
    remove_folder(path)
    fresh.rename(path)
    _sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder. It is renamed first, so a folder that is only half removed does not keep its name.

    Raises:
        OSError: it could not be renamed.
    """
    leaving = path.with_name(path.name + PARTIAL)
    shutil.rmtree(leaving, ignore_errors=True)
    path.rename(leaving)
    shutil.rmtree(leaving, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove all unfinished files and folders in ``folder``. Errors are ignored: leftovers do no harm."""
    for path in folder.glob(f"*{PARTIAL}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            try:
                path.unlink()
            except OSError:
                continue


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
