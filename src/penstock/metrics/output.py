"""Writes to an output without waiting for its reader, who may be gone (`| head`) or have stopped (Ctrl-S, a pager).

Formats nothing.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import IO, TextIO

__all__ = ["Outlet", "abandon", "own_stream"]

LAST_WORDS_S = 0.5
"""A closed outlet waits so long for its last writes."""


class Outlet:
    """Runs writes in a thread of its own, so that its caller never waits.

    If too many writes wait, the oldest is dropped.

    Args:
        stream: the output. After a failed write, all later ones are dropped.
        limit: writes that may wait at once.
    """

    def __init__(self, stream: IO[str], limit: int) -> None:
        self._stream = stream
        self._waiting: deque[Callable[[], None]] = deque(maxlen=limit)
        self._changed = threading.Condition()
        self._closed = False
        # A daemon thread: if it hangs in a write, the process can still end.
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def put(self, write: Callable[[], None]) -> None:
        """Call ``write`` soon, in the thread. If it raises OSError or ValueError, the output counts as gone."""
        with self._changed:
            self._waiting.append(write)
            self._changed.notify()

    def close(self) -> None:
        """Let the thread write what waits, and end. Returns after half a second even if the thread still hangs."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(LAST_WORDS_S)

    def _run(self) -> None:
        while (write := self._next()) is not None:
            try:
                write()
            except (OSError, ValueError):
                # The reader is gone. The run continues, and its log holds every number.
                abandon(self._stream)
                return

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return self._waiting.popleft() if self._waiting else None


def own_stream(stream: TextIO) -> TextIO:
    """Another stream to the same file, or ``stream`` itself if it has no file.

    A thread that hangs in a write holds its stream's lock. With the lock of standard output, Python could not exit.
    """
    try:
        file, encoding = stream.fileno(), stream.encoding
    except (OSError, ValueError):
        return stream
    return open(file, "w", encoding=encoding, errors="replace", closefd=False)


def abandon(stream: IO[str] | None) -> None:
    """Drop everything that is written to ``stream`` from now on, also by Python's flush at exit, which would fail."""
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
