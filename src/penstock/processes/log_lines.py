"""What a process has to say, on its way to the launcher through its error pipe: log lines, a traceback, stacks.

A log line is `_BEGIN`, its level, how often it came and its text, with `_PART` between them, and a newline.
Imports nothing that takes time.
"""

import contextlib
import os
import select
from typing import NamedTuple

__all__ = ["ErrorPipe", "LogLine", "as_bytes", "last_words"]

LINE_BYTES = select.PIPE_BUF
"""Most bytes of a log line. So many are written whole, and at once if there is room for anything."""
LAST_WORDS_BYTES = 60_000
"""Most bytes of a traceback: its end. An empty pipe of Linux holds 65,536."""
KEPT_BYTES = 1 << 20
"""Most bytes of tracebacks and stacks that are kept of a process until they are taken: the last ones. Children of an
environment may crash one after the other, and each leaves its stacks."""
_BEGIN = "\x1e"
_PART = "\x1f"


class LogLine(NamedTuple):
    """A line that a process has logged."""

    process: str
    """The process's placement group; if it runs elsewhere, also its machine."""
    level: str
    """As ``logging`` names it: ``WARNING``, ``ERROR``, ..."""
    text: str
    """One line."""
    times: int
    """How often it was logged since the process told of it before."""


def as_bytes(level: str, text: str, times: int) -> bytes:
    """The bytes of a log line, for an error pipe. All white space becomes single spaces; a text that is long is cut."""
    head = f"{_BEGIN}{_plain(level)}{_PART}{times}{_PART}".encode()
    return head + _plain(text).encode()[: LINE_BYTES - len(head) - 1] + b"\n"


def last_words(text: str) -> bytes:
    """The bytes of a traceback, for an error pipe: its end, if it is long."""
    return text.replace(_BEGIN, "?").encode(errors="replace")[-LAST_WORDS_BYTES:]


def _plain(text: str) -> str:
    """One line of characters that can be printed."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


class ErrorPipe:
    """The launcher's end of a process's error pipe.

    Args:
        process: its name.
        descriptor: reading end of the pipe. Reading never waits.
    """

    def __init__(self, process: str, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._process = process
        self._descriptor = descriptor
        self._unread = b""
        """The beginning of a log line whose end has not come yet."""
        self._text = b""

    def fileno(self) -> int:
        """The descriptor, for ``select``."""
        return self._descriptor

    def read(self) -> list[LogLine]:
        """Read all that is in the pipe. Returns the log lines. A child of an environment may hold the pipe open."""
        lines: list[LogLine] = []
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._descriptor, 65_536):
                lines += self._lines(part)
        return lines

    def take_text(self) -> str:
        """What was read besides log lines, and is not taken yet: a traceback, or stacks."""
        text, self._text = self._text, b""
        return text.decode(errors="replace")

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def _lines(self, part: bytes) -> list[LogLine]:
        """Take the next bytes. Returns the log lines that are whole now, and keeps all else."""
        text, *rest = (self._unread + part).split(_BEGIN.encode())
        self._unread, lines = b"", []
        self._text += text
        for index, begun in enumerate(rest):
            line, end, text = begun.partition(b"\n")
            if not end and index == len(rest) - 1:
                self._unread = _BEGIN.encode() + begun
                continue
            level, times, said = (*line.decode(errors="ignore").split(_PART), "", "")[:3]
            if times.isdecimal():
                lines.append(LogLine(self._process, level, said, int(times)))
            self._text += text
        self._text = self._text[-KEPT_BYTES:]
        return lines
