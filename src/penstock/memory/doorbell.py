"""Doorbells: how processes wake each other. One bell a process; who has nothing to do sleeps on its own.

The order matters: read the bell's word, look for work, and only then ``wait`` with that word. A ring in between changes
the word, so the sleep does not begin. What was rung for is not said: look everywhere.
"""

import os
import sys

from penstock.memory import _native
from penstock.types import Array

__all__ = ["CEILING_S", "BellDescriptor", "Doorbells"]

_LINUX = sys.platform == "linux"

CEILING_S = 0.1
"""No sleep lasts longer, in seconds."""


class Doorbells:
    """The bells of a run, one for each process."""

    def __init__(self, bytes: Array, count: int) -> None:  # noqa: A002
        """Attach to ``required(count)`` bytes, uint8, that start at a multiple of 64 and were zero at first."""
        self.count = count
        self._bells = _native.Doorbells(bytes, count)

    @staticmethod
    def required(count: int) -> int:
        """Bytes that ``count`` bells take."""
        return _native.Doorbells.required(count)

    def ring(self, index: int) -> None:
        """Wake whoever sleeps on bell ``index``. Costs a system call only if somebody does."""
        self._bells.ring(index)

    def ring_all(self) -> None:
        """Ring every bell."""
        self._bells.ring_all()

    def word(self, index: int) -> int:
        """The bell's word: read it before looking for work."""
        return self._bells.word(index)

    def wait(self, index: int, seen: int, timeout_s: float = CEILING_S, spin_s: float = 0.0) -> bool:
        """Sleep until the bell's word is no longer ``seen``; other threads of this process run meanwhile.

        Args:
            index: the bell.
            seen: its word, as read before looking for work.
            timeout_s: how long at most; never longer than ``CEILING_S``.
            spin_s: how long to spin before sleeping, out of ``timeout_s``.

        Returns:
            True if the bell rang; false after the time-out or a signal.
        """
        return self._bells.wait(index, seen, timeout_s, spin_s)

    def attach(self, index: int, descriptor: "BellDescriptor") -> None:
        """Let this process's rings of bell ``index`` also make ``descriptor`` readable, while its owner is armed."""
        self._bells.attach(index, descriptor.write_fd)

    def arm(self, index: int, seen: int) -> bool:
        """Announce a sleep on the bell's descriptor (``select``); false if the word has changed: then do not sleep.

        ``disarm`` follows in either case.
        """
        return self._bells.arm(index, seen)

    def disarm(self, index: int) -> None:
        """End what ``arm`` began."""
        self._bells.disarm(index)

    def recover(self, index: int) -> None:
        """After the process of this bell was killed and reaped: it sleeps on it no more."""
        self._bells.recover(index)


class BellDescriptor:
    """A descriptor that rings make readable, for a process that also waits on sockets: an eventfd, elsewhere a pipe.

    Attributes:
        read_fd: to wait on.
        write_fd: what ringers write to; the same number where it is an eventfd.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        """Use descriptors that another process passed on; ``create`` makes new ones."""
        self.read_fd = read_fd
        self.write_fd = write_fd

    @classmethod
    def create(cls) -> "BellDescriptor":
        """Make one; pass both numbers on to the processes that will ring."""
        if _LINUX:
            descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return cls(descriptor, descriptor)
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        return cls(read_fd, write_fd)

    def drain(self) -> None:
        """Make it unreadable again, after a wait."""
        try:
            os.read(self.read_fd, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in {self.read_fd, self.write_fd}:
            os.close(descriptor)
