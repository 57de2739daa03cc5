"""One piece of shared memory: anonymous, or a file at a path. Knows nothing of what lies in it.

Anonymous memory is a memfd on Linux and a file that is unlinked at once elsewhere: it has no name, so when the
processes that hold it are gone, it is gone too, however they ended.
"""

import contextlib
import mmap
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from penstock.errors import ResourceError
from penstock.types import Array

__all__ = ["Segment", "anonymous_file", "reserve"]

_LINUX = sys.platform == "linux"


class Segment:
    """A mapping of shared memory.

    Attributes:
        bytes: ``[nbytes]`` uint8, the memory itself, zero at first; not writable where attached so.
        nbytes: its size.
        fd: its descriptor, to pass on with ``subprocess.Popen(pass_fds=...)``. It is closed in whatever else this
            process starts, so that no grandchild keeps the memory alive.
    """

    bytes: Array

    def __init__(self, fd: int, nbytes: int, *, writable: bool) -> None:
        """Map ``fd`` and own it from now on. Use ``create`` and ``attach``."""
        self.fd = fd
        self.nbytes = nbytes
        try:
            os.set_inheritable(fd, False)
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            # Fails where fd holds less: touching a page behind its end would kill the process.
            self._mapping = mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED, prot=protection)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                os.close(fd)
            raise ResourceError(f"cannot map a segment of {nbytes} bytes at descriptor {fd}: {error}") from error
        self.bytes = np.frombuffer(self._mapping, np.uint8)

    @classmethod
    def create(cls, nbytes: int, name: str, path: Path | None = None) -> "Segment":
        """Make a new segment, filled with zeros.

        Args:
            nbytes: its size, more than 0.
            name: what it is for; shows up in the process's list of mappings.
            path: a new file to keep it in; without one it is anonymous.

        Raises:
            ResourceError: the machine has no room for it, or ``path`` cannot be made.
        """
        if nbytes <= 0:
            raise ResourceError(f"a segment has at least 1 byte, {name} asks for {nbytes}")
        try:
            fd = anonymous_file(name) if path is None else os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise ResourceError(f"cannot make the segment {name} at {path or 'memory'}: {error.strerror}") from error
        try:
            os.ftruncate(fd, nbytes)
            if path is not None:
                reserve(fd, nbytes)
        except OSError as error:
            os.close(fd)
            if path is not None:
                path.unlink(missing_ok=True)
            raise ResourceError(f"no space for the segment {name} of {nbytes} bytes: {error.strerror}") from error
        return cls(fd, nbytes, writable=True)

    @classmethod
    def attach(cls, fd: int, nbytes: int, *, writable: bool = True) -> "Segment":
        """Map a segment that another process made and own ``fd``, the descriptor it passed on.

        Raises:
            ResourceError: ``fd`` is not a segment of at least ``nbytes``.
        """
        return cls(fd, nbytes, writable=writable)

    def close(self) -> None:
        """Close the descriptor and unmap the memory, once no array views it any more. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.bytes = np.empty(0, np.uint8)
        try:
            self._mapping.close()
        except BufferError:
            # Structures and arrays still point into it, and would crash without it. It goes with the last of them.
            return


def anonymous_file(name: str) -> int:
    """The descriptor of a new empty file without a name, which is gone with the last process that holds it.

    Raises:
        OSError: the system has no room for it.
    """
    if _LINUX:
        return os.memfd_create(f"penstock-{name}", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix="penstock-")
    Path(path).unlink()
    return descriptor


def reserve(fd: int, nbytes: int) -> None:
    """Have the disk keep room for so many bytes of a file, where the system can.

    Raises:
        OSError: it has none.
    """
    # A file with holes kills the process that touches one when the disk is full; so the disk answers now.
    if _LINUX:
        os.posix_fallocate(fd, 0, nbytes)
