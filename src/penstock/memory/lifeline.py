"""The lifeline: a pipe that only the launcher holds open: its end ends its children, whatever they are doing."""

import os

from penstock.memory import _native

__all__ = ["ORPHANED", "Lifeline", "watch"]

ORPHANED = 113
"""Exit code of a process whose lifeline was cut."""


class Lifeline:
    """The launcher's end of the pipe. Its death closes it; no ``finally`` is needed.

    Attributes:
        fd: the children's end; pass it on with ``subprocess.Popen(pass_fds=...)``.
    """

    def __init__(self) -> None:
        self.fd, self._held = os.pipe()

    def close(self) -> None:
        """Cut the lifeline: every process that watches it ends. May be called twice."""
        for descriptor in {self.fd, self._held} - {-1}:
            os.close(descriptor)
        self.fd = self._held = -1


def watch(fd: int, code: int = ORPHANED) -> None:
    """End this process with ``code``, at once and without clean-up, when the lifeline is cut.

    A native thread of its own watches; it needs no interpreter lock. ``fd`` may be closed afterwards.

    Raises:
        ResourceError: ``fd`` is not open.
    """
    _native.watch_lifeline(fd, code)
