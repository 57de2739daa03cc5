"""Writing to an output that perhaps nobody reads: it may have gone (`| head`) or stand still (Ctrl-S, a stopped pager).

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
"""How long an outlet that is closed waits for what it has not yet written."""


class Outlet:
    """Runs writes in a thread of its own, so that whoever asks for them never waits.

    What waits is bounded: the oldest write is dropped for the newest.

    Args:
        stream: what is written to; once a write fails, all that follows vanishes.
        limit: writes that may wait at once.
    """

    def __init__(self, stream: IO[str], limit: int) -> None:
        self._stream = stream
        self._waiting: deque[Callable[[], None]] = deque(maxlen=limit)
        self._changed = threading.Condition()
        self._closed = False
        # A daemon: one that hangs in a write must not keep the process.
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def put(self, write: Callable[[], None]) -> None:
        """Have ``write`` called soon; an OSError or ValueError of it means that the output is gone."""
        with self._changed:
            self._waiting.append(write)
            self._changed.notify()

    def close(self) -> None:
        """Let the thread write what waits and end; it is left behind if that takes longer than a moment."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(LAST_WORDS_S)

    def _run(self) -> None:
        while (write := self._next()) is not None:
            try:
                write()
            except (OSError, ValueError):
                # The reader has left; the run goes on, and its log holds every number.
                abandon(self._stream)
                return

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return self._waiting.popleft() if self._waiting else None


def own_stream(stream: TextIO) -> TextIO:
    """Another stream to the same file, or ``stream`` itself where there is no file behind it.

    A thread that hangs in a write holds its stream's lock, and Python takes that of standard output when it ends.
    """
    try:
        file, encoding = stream.fileno(), stream.encoding
    except (OSError, ValueError):
        return stream
    return open(file, "w", encoding=encoding, errors="replace", closefd=False)


def abandon(stream: IO[str] | None) -> None:
    """Let all that is still written to ``stream`` vanish, also what Python flushes at exit, which would fail again."""
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
