"""The lock of a run's folder: one process at a time writes the run. Makes and removes no folder.

The kernel holds the lock, and frees it when the process dies.
"""

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from penstock.errors import RunFolderError

__all__ = ["LOCK", "locked"]

LOCK = ".lock"
"""File in the folder whose lock the process that writes the run holds."""
_HELD: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()
"""Lock files of the runs that this process writes."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder within the ``with`` block.

    Raises:
        RunFolderError: another process holds it, or the folder cannot be written or locked.
    """
    try:
        lock = (folder / LOCK).open("ab")
    except OSError as error:
        raise RunFolderError(f"run folder {folder} cannot be written: {error.strerror or error}") from error
    in_use = f"run {folder} is in use by another process; wait for its end"
    with lock:
        _HELD.add(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Race: 1. This process opens the file. 2. Another one, which has the lock, removes the folder and makes
            # a new one of its name. 3. This process gets the lock of the file that was removed.
            is_there = os.path.samestat(os.fstat(lock.fileno()), (folder / LOCK).stat())
        except (BlockingIOError, FileNotFoundError) as error:
            raise RunFolderError(in_use) from error
        except OSError as error:
            why = error.strerror or error
            raise RunFolderError(
                f"run {folder} cannot be claimed: its file system locks no files: {why}; give another --log_dir"
            ) from error
        if not is_there:
            raise RunFolderError(in_use)
        yield


def _let_go() -> None:
    """Runs in a child that the user's script forks: the child must not keep the lock."""
    for lock in _HELD:
        lock.close()


os.register_at_fork(after_in_child=_let_go)
