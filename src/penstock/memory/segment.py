"""A segment: one piece of shared memory, anonymous or in a file at a path. Does not know what it holds.

Anonymous memory is a memfd on Linux. On other systems it is a file that is unlinked at once. It has no name, so the
system frees it with the last process that holds it, however that process ends.
"""

import contextlib
import mmap
import os
import sys
from pathlib import Path

import numpy as np

from penstock.errors import ResourceError
from penstock.memory.anonymous import anonymous_file
from penstock.types import Array

__all__ = ["Segment", "reserve"]

_LINUX = sys.platform == "linux"


class Segment:
    """A mapping of shared memory.

    Attributes:
        bytes: ``[nbytes]`` uint8, the memory itself, zero at first; read-only if attached so.
        nbytes: size in bytes.
        fd: descriptor to pass on with ``subprocess.Popen(pass_fds=...)``. Other processes that this one starts do not
            inherit it, so no grandchild keeps the memory alive.
    """

    bytes: Array

    def __init__(self, fd: int, nbytes: int, *, writable: bool) -> None:
        """Map ``fd`` and own it from now on. Use ``create`` or ``attach`` instead."""
        self.fd = fd
        self.nbytes = nbytes
        try:
            os.set_inheritable(fd, False)
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            # mmap fails if the file is shorter. Touching a page behind its end would kill the process.
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
            nbytes: size in bytes, more than 0.
            name: purpose of the segment. The system shows it among the mappings of a process.
            path: a new file that holds the segment; ``None``: the segment is anonymous.

        Raises:
            ResourceError: the machine has no space for it, or ``path`` cannot be made.
        """
        if nbytes <= 0:
            raise ResourceError(f"a segment has at least 1 byte; {name} asks for {nbytes}")
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
        """Map a segment that another process made. Owns ``fd``, its descriptor, from now on.

        Raises:
            ResourceError: ``fd`` is not a segment of at least ``nbytes``.
        """
        return cls(fd, nbytes, writable=writable)

    def give_back(self, part: Array) -> None:
        """Give the memory of a part of the segment back to the system. Then it reads as zeros in every process.

        Only pages that lie in the part as a whole are given back. Nobody may write to the part meanwhile.

        Args:
            part: a contiguous view of ``bytes``, of any type.

        Raises:
            ResourceError: the system does not take it back. Only Linux does.
        """
        begin = part.ctypes.data - self.bytes.ctypes.data
        first, end = -(-begin // mmap.PAGESIZE), (begin + part.nbytes) // mmap.PAGESIZE
        if first >= end:
            return
        if not _LINUX:
            raise ResourceError("only Linux takes back a part of a segment")
        try:
            self._mapping.madvise(mmap.MADV_REMOVE, first * mmap.PAGESIZE, (end - first) * mmap.PAGESIZE)
        except OSError as error:
            raise ResourceError(f"the system takes back no memory of a segment: {error.strerror}") from error

    def close(self) -> None:
        """Close the descriptor. Unmap the memory once no array views it any more. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.bytes = np.empty(0, np.uint8)
        try:
            self._mapping.close()
        except BufferError:
            # Structures and arrays still point into the memory and would crash without it. The last one frees it.
            return


def reserve(fd: int, nbytes: int) -> None:
    """Reserve disk space for ``nbytes`` of a file, on Linux.

    Raises:
        OSError: the disk has no space for them.
    """
    # If the disk is full, a process that touches a hole of a file is killed. So ask the disk now.
    if _LINUX:
        os.posix_fallocate(fd, 0, nbytes)
