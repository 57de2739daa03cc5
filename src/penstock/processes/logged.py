"""Tells the launcher what this process logs: warnings and errors of ``logging``, and what ``warnings`` shows.

What was shown on the console is shown there as before. Nothing waits: what finds no room in the pipe is told later.
"""

import logging
import os
import re
import select
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from penstock.processes.log_lines import LINE_BYTES, as_bytes

__all__ = ["Teller", "into_pipe", "listen"]

TEXTS = 5
"""Different texts of one place in the code that are told each for itself. All further ones count as one."""
MOST = 1000
"""Different lines of a process that are told."""
_CAPTURED = "py.warnings"
"""The logger of what ``warnings`` shows, after ``logging.captureWarnings(True)``."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class _Said:
    """A line, and how often this process has logged it."""

    level: str
    text: str
    count: int = 0
    untold: int = 0
    """How many of these the launcher does not know of."""
    due: int = 1
    """The count at which it is told next: 1, 10, 100, ..."""


class Teller:
    """Tells each line when it is logged first, for the 10th time, for the 100th time, ..., and at the end.

    It has no lock: a thread that holds one may be missing in a child that the environment forks. If two threads log the
    same line at the same instant, one of them may not be counted.

    A child that the environment forks begins anew. What its parent has not told yet, the parent tells.

    Args:
        send: takes the bytes of a line. False: there is no room for it now.
    """

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        self._send = send
        self._begin()

    def _begin(self) -> None:
        """This process has said nothing yet."""
        self._process = os.getpid()
        self._said: dict[tuple[str, str], _Said] = {}
        """Place and text -> what was said; without a text: all further texts of the place."""
        self._texts: Counter[str] = Counter()
        """Place -> the number of its lines."""
        self._left_out = 0

    def tell(self, level: str, place: str, text: str) -> None:
        """Tell a line, or count it.

        Args:
            level: as ``logging`` names it.
            place: where in the code it was logged.
            text: may have several lines, and colours. Texts that begin alike for as long as a line count as one.
        """
        if self._process != os.getpid():
            self._begin()
        text = text[:LINE_BYTES]
        said = self._said.get((place, text)) or self._of_place(level, place, text)
        if said is None:
            self._left_out += 1
            return
        said.count += 1
        said.untold += 1
        if said.count >= said.due and self._told(said):
            said.due = 10 ** len(str(said.count))

    def close(self) -> None:
        """Tell how often each line came since it was told of, as far as there is room."""
        for said in list(self._said.values()):
            if said.untold:
                self._told(said)
        if self._left_out:
            text = f"a line that is left out, as {MOST:,} different ones came before"
            self._send(as_bytes("WARNING", text, self._left_out))

    def _of_place(self, level: str, place: str, text: str) -> _Said | None:
        """The line that counts a new text: a line of its own, or the line for all further texts of its place.

        ``None`` if the process has ``MOST`` lines already.
        """
        is_last = self._texts[place] >= TEXTS
        key = place, "" if is_last else text
        if key not in self._said:
            if len(self._said) >= MOST:
                return None
            rest = " (from here on, all other texts of this place count as this one)" if is_last else ""
            self._said[key] = _Said(level, _COLOURS.sub("", text) + rest)
            self._texts[place] += 1
        return self._said[key]

    def _told(self, said: _Said) -> bool:
        if not self._send(as_bytes(said.level, said.text, said.untold)):
            return False
        said.untold = 0
        return True


def into_pipe(descriptor: int) -> Callable[[bytes], bool]:
    """A function that writes a line of at most ``PIPE_BUF`` bytes into a pipe, unless that would wait."""
    pipe = os.fstat(descriptor)

    def send(line: bytes) -> bool:
        # Made anew each time: two threads may not share one.
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        try:
            # A child that the environment has forked may have closed the pipe, and may have a file of its own there.
            if not os.path.samestat(os.fstat(descriptor), pipe) or not poll.poll(0):
                return False
            return os.write(descriptor, line) == len(line)
        except OSError:
            return False

    return send


def listen(tell: Callable[[str, str, str], None]) -> None:
    """Call ``tell`` with level, place and text of each warning and error that this process logs from now on.

    A handler would change what is shown: ``logging`` shows warnings by itself only while there is no handler, and
    ``basicConfig`` then does nothing.
    """
    make, show = logging.getLogRecordFactory(), warnings.showwarning

    def make_and_tell(*given: Any, **named: Any) -> logging.LogRecord:  # noqa: ANN401 - as the next factory takes them
        record = make(*given, **named)
        # `logging.makeLogRecord` gives no level: it copies a record of another process.
        if record.levelno is not None and record.levelno >= logging.WARNING:
            _guarded(lambda: tell(str(record.levelname), _place(record), _text(record)))
        return record

    def show_and_tell(  # noqa: PLR0917 - as `warnings` calls it
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        show(message, category, filename, lineno, file, line)
        text = f"{Path(filename).name}:{lineno}: {category.__name__}: "
        _guarded(lambda: tell("WARNING", f"{filename}:{lineno}", f"{text}{message}"))

    logging.setLogRecordFactory(make_and_tell)
    warnings.showwarning = show_and_tell


def _place(record: logging.LogRecord) -> str:
    """Where in the code a record was logged."""
    if record.name == _CAPTURED:
        # One line of `warnings` logs all of them. Their texts begin with the places: "FILE:7: UserWarning: ...".
        return record.getMessage().partition(": ")[0]
    return f"{record.pathname}:{record.lineno}"


def _text(record: logging.LogRecord) -> str:
    """The text of a record, with its logger and its exception."""
    name = "" if record.name == logging.root.name else f"{record.name}: "
    error = record.exc_info[1] if record.exc_info else None
    return f"{name}{record.getMessage()}" + ("" if error is None else f" ({type(error).__name__}: {error})")


def _guarded(tell: Callable[[], None]) -> None:
    """Call ``tell``. The user's objects in a message may raise anything, which `logging` shows without an end."""
    try:
        tell()
    except Exception:  # noqa: BLE001 - see above
        return
