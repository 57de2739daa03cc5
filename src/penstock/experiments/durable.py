"""Files that are whole or not there: written under a temporary name, synced to the disk, then renamed.

Whatever ends in ``.partial`` was never finished, or is on its way out; ``sweep`` removes it. Knows nothing of what it
writes.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PARTIAL", "remove_folder", "replace_folder", "sweep", "write_file", "write_folder"]

PARTIAL = ".partial"


def write_file(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``, replacing what is there.

    Raises:
        OSError: it could not be written; what was there is unchanged.
    """
    partial = path.with_name(path.name + PARTIAL)
    _write_synced(partial, content)
    partial.replace(path)
    _sync_folder(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Put a folder of ``files`` at ``path``, where nothing is yet.

    Raises:
        OSError: it could not be written; nothing is left at ``path``.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, content in files.items():
            _write_synced(partial / name, content)
        # The names inside must be on the disk before the rename is, or a power cut could leave an empty folder.
        _sync_folder(partial)
        partial.rename(path)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _sync_folder(path.parent)


def replace_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Put a folder of ``files`` at ``path`` instead of the one there.

    Raises:
        OSError: it could not be written; what was there is unchanged.
    """
    fresh = path.with_name(f"{path.name}.fresh{PARTIAL}")
    shutil.rmtree(fresh, ignore_errors=True)
    write_folder(fresh, files)
    # A death between these two leaves nothing at `path`: there is no portable way to exchange folders in one step.
    remove_folder(path)
    fresh.rename(path)
    _sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder; one that is removed halfway no longer has its name.

    Raises:
        OSError: it could not be renamed.
    """
    leaving = path.with_name(path.name + PARTIAL)
    shutil.rmtree(leaving, ignore_errors=True)
    path.rename(leaving)
    shutil.rmtree(leaving, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove whatever in ``folder`` was never finished. Errors are let pass: it is only untidy."""
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
