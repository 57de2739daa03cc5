"""The lifeline: a pipe that only the launcher holds open. When it closes, the launcher's children end."""

import os

from penstock.memory import _native

__all__ = ["ORPHANED", "Lifeline", "watch"]

ORPHANED = 113
"""Exit code of a process whose lifeline was cut."""


class Lifeline:
    """The launcher's end of the pipe. The launcher's death closes it; no ``finally`` is needed.

    Attributes:
        fd: the children's end. Pass it on with ``subprocess.Popen(pass_fds=...)``.
    """

    def __init__(self) -> None:
        self.fd, self._held = os.pipe()

    def close(self) -> None:
        """Cut the lifeline, which ends every process that watches it. May be called twice."""
        for descriptor in {self.fd, self._held} - {-1}:
            os.close(descriptor)
        self.fd = self._held = -1


def watch(fd: int, code: int = ORPHANED) -> None:
    """End this process with ``code``, at once and without clean-up, when the lifeline is cut.

    A native thread watches it and needs no interpreter lock. ``fd`` may be closed afterwards.

    Raises:
        ResourceError: ``fd`` is not open.
    """
    _native.watch_lifeline(fd, code)
