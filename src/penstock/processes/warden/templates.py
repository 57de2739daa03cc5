"""A template as the warden sees it: which processes it is asked to fork, one after the other, and how late it is."""

import contextlib
import os
import sys
import time
from _socket import SCM_RIGHTS, SOL_SOCKET, socket

from .descendants import kill
from .messages import PID_BYTES, as_message

__all__ = ["Start", "Template"]

LIMIT_S = 60.0
"""How long a template may take for its imports, and for a fork."""


class Start:
    """A process to be started, with its command line, environment and descriptors."""

    def __init__(  # noqa: PLR0917 - as the message has them
        self,
        name: str,
        program: list[bytes],
        entry: str,
        numbers: list[int],
        environment: dict[bytes, bytes],
        given: list[int],
    ) -> None:
        self.name = name
        self.program = program
        self.entry = entry
        self.numbers = numbers
        self.environment = environment
        self.given = given
        self.killed = False
        """It was killed before it ran."""

    def close(self) -> None:
        """Close its descriptors."""
        for descriptor in self.given:
            os.close(descriptor)


class Template:
    """A process that forks others.

    Args:
        pid: of the template.
        control: the warden's end of its socket. The template is asked only while it waits.
    """

    def __init__(self, pid: int, control: socket) -> None:
        self.pid: int | None = pid
        """``None`` once it is reaped: the system may give its number to another process."""
        self.control = control
        # The template is asked only while it waits. So a time-out means that it was stopped.
        control.settimeout(LIMIT_S)
        self.queue: list[Start] = []
        self.forking: Start | None = None
        self._hold = -1
        """Writing end of a pipe. The process that is being forked waits for a byte; it ends if the pipe is closed."""
        self._busy_since: float | None = time.monotonic()
        """Since when it imports or forks; ``None`` while it waits."""

    def patience_s(self) -> float:
        """How many seconds more its imports or its fork may take; infinite while it waits."""
        return float("inf") if self._busy_since is None else self._busy_since + LIMIT_S - time.monotonic()

    def starts(self) -> list[Start]:
        """The processes that it is asked for and that are not known yet."""
        return self.queue if self.forking is None else [self.forking, *self.queue]

    def ask(self) -> None:
        """Ask it to fork the next process, if it waits. One at a time, so that the warden never waits for it.

        Raises:
            OSError: it is gone or was stopped, or the system refuses a pipe.
        """
        if self._busy_since is not None or not self.queue:
            return
        held, self._hold = os.pipe()
        self.forking = start = self.queue.pop(0)
        self._busy_since = time.monotonic()
        descriptors = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in (*start.given, held))
        message = as_message((start.entry, start.numbers, start.environment))
        try:
            # Descriptors travel with the first bytes of their message.
            sent = self.control.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
            self.control.sendall(message[sent:])
        finally:
            os.close(held)

    def answer(self) -> int | None:
        """Read its answer: the process that it has forked, or 0 if it is ready. ``None``: it is gone."""
        found = b""
        with contextlib.suppress(OSError):
            found = self.control.recv(PID_BYTES)
        if len(found) < PID_BYTES:
            return None
        self._busy_since = None
        return int.from_bytes(found, "little")

    def settle(self, *, run: bool) -> None:
        """Let the process that was forked run, or end. It has held still until now."""
        if self.forking is None:
            return
        if run:
            # The process may have been killed from outside.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._hold, b"1")
        os.close(self._hold)
        self.forking.close()
        self.forking = None

    def end(self) -> list[Start]:
        """Kill the template. Returns the processes that it was asked for; the one that was being forked ends."""
        self.control.close()
        if self.pid is not None:
            kill(self.pid)
        if self.forking is not None:
            os.close(self._hold)
        return self.starts()
