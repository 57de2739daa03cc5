"""Doorbells: how processes wake each other. Each process has one bell, and sleeps on it when it has no work.

The order matters:

1. Read the bell's word.
2. Look for work. A ring does not say why it rang: look everywhere.
3. If there is none, ``wait`` with the word of step 1. A ring since then has changed the word: the sleep does not begin.
"""

import os
import sys

from penstock.memory import _native
from penstock.types import Array

__all__ = ["CEILING_S", "BellDescriptor", "Doorbells"]

_LINUX = sys.platform == "linux"

CEILING_S = 0.1
"""No sleep lasts longer, in seconds. A lost ring costs at most this, and heartbeats go on."""


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
        """Wake the process that sleeps on bell ``index``. Makes a system call only if a process sleeps."""
        self._bells.ring(index)

    def ring_all(self) -> None:
        """Ring every bell."""
        self._bells.ring_all()

    def word(self, index: int) -> int:
        """The bell's word. Read it before looking for work."""
        return self._bells.word(index)

    def wait(self, index: int, seen: int, timeout_s: float = CEILING_S, spin_s: float = 0.0) -> bool:
        """Sleep until the bell's word is no longer ``seen``; other threads of this process run meanwhile.

        Args:
            index: the bell.
            seen: its word, as read before looking for work.
            timeout_s: longest sleep in seconds; never longer than ``CEILING_S``.
            spin_s: seconds to spin before sleeping. They count towards ``timeout_s``.

        Returns:
            True if the bell rang. False after the time-out or a signal.
        """
        return self._bells.wait(index, seen, timeout_s, spin_s)

    def attach(self, index: int, descriptor: "BellDescriptor") -> None:
        """Let this process's rings of bell ``index`` make ``descriptor`` readable, too, while its owner is armed."""
        self._bells.attach(index, descriptor.write_fd)

    def arm(self, index: int, seen: int) -> bool:
        """Announce a sleep on the bell's descriptor (``select``). False if the word has changed: then do not sleep.

        Call ``disarm`` afterwards in both cases.
        """
        return self._bells.arm(index, seen)

    def disarm(self, index: int) -> None:
        """End what ``arm`` began."""
        self._bells.disarm(index)

    def recover(self, index: int) -> None:
        """Call this after the process of this bell was killed and reaped. It no longer counts as asleep."""
        self._bells.recover(index)


class BellDescriptor:
    """A descriptor that rings make readable, for a process that also waits on sockets.

    It is an eventfd on Linux, and a pipe on other systems.

    Attributes:
        read_fd: descriptor to wait on.
        write_fd: descriptor that ringing processes write to. An eventfd has the same number for both.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        """Use descriptors that another process has passed on. ``create`` makes new ones."""
        self.read_fd = read_fd
        self.write_fd = write_fd

    @classmethod
    def create(cls) -> "BellDescriptor":
        """Make new descriptors. Pass both numbers on to the processes that will ring."""
        if _LINUX:
            descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return cls(descriptor, descriptor)
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        return cls(read_fd, write_fd)

    def drain(self) -> None:
        """Make ``read_fd`` unreadable again, after a wait."""
        try:
            os.read(self.read_fd, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in {self.read_fd, self.write_fd}:
            os.close(descriptor)
