"""Writes files and folders whole or not at all: under a temporary name, synced to the disk, then renamed.

A name that ends in ``.partial`` was never finished, or is being removed. ``sweep`` removes it. Knows no format.
"""

import ctypes
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["PARTIAL", "move_file", "remove_folder", "replace_folder", "sweep", "write_file", "write_folder"]

PARTIAL = ".partial"
_HERE = -100
"""``AT_FDCWD``: a relative path begins at the working folder."""
_EXCHANGE = 2
"""``RENAME_EXCHANGE``."""


def write_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, replacing an older file.

    Raises:
        OSError: it could not be written; the older file is unchanged.
    """
    partial = path.with_name(path.name + PARTIAL)
    _write_synced(partial, content)
    move_file(partial, path)


def move_file(synced: Path, path: Path) -> None:
    """Give a file, whose content is on the disk, another name in its folder. A file of that name is replaced.

    Raises:
        OSError: it could not be renamed.
    """
    synced.replace(path)
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

    On Linux, where the file system can exchange names, one of the two is whole at ``path`` at any time. Elsewhere
    nothing is there between two renames; after a death just then, both folders have names that end in ``.partial``.

    Raises:
        OSError: it could not be written; the older folder is unchanged.
    """
    fresh, older = (path.with_name(f"{path.name}{name}{PARTIAL}") for name in (".fresh", ".older"))
    for left in (fresh, older):
        shutil.rmtree(left, ignore_errors=True)
    write_folder(fresh, files)
    if _exchange(fresh, path):
        older = fresh
    else:
        try:
            path.rename(older)
            fresh.rename(path)
        except OSError:
            if older.exists():
                older.rename(path)
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    _sync_folder(path.parent)
    shutil.rmtree(older, ignore_errors=True)


def remove_folder(path: Path, is_wanted: Callable[[], bool] = lambda: False) -> None:
    """Remove a folder. It is renamed first, so a folder that is only half removed does not keep its name.

    Args:
        path: the folder.
        is_wanted: called once the folder no longer has its name. If it returns True, the folder gets its name back.

    Raises:
        OSError: it could not be renamed.
    """
    leaving = path.with_name(path.name + PARTIAL)
    shutil.rmtree(leaving, ignore_errors=True)
    path.rename(leaving)
    if is_wanted():
        leaving.rename(path)
    else:
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


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step. False: the system or its file system cannot, and nothing changed.

    Source: renameat2(2). Python has no function for it.
    """
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    done: int = renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    return done == 0


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
