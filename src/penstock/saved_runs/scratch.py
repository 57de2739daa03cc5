"""Folders for files that nobody needs once their process has ended, however it ends. Does not know what they hold."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["scratch_folder"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A new folder among the system's temporary files, for the ``with`` block.

    A process that is killed leaves its folder. The next one that asks for a folder with this prefix removes it. The
    kernel holds a lock on each folder, and frees it when the process dies.

    Args:
        prefix: of the folder's name. It says what the folder is for.

    Raises:
        OSError: it cannot be made.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_left(path)
    path, lock = _locked(prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(prefix: str) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock.

    1. Before the folder is locked here, another process may take it for one that was left. It locks and removes it.
    2. This process waits for the lock and finds that the folder is gone. It makes another one.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, _FOLDER)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def _remove_if_left(path: Path) -> None:
    """Remove a folder of this user whose process is dead."""
    try:
        lock = os.open(path, _FOLDER)
    except OSError:
        return
    with contextlib.suppress(OSError):
        if os.fstat(lock).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
