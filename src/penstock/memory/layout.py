"""The offsets of named arrays in memory: multiples of 64, in the given order. Holds no memory."""

from collections.abc import Sequence

import numpy as np

from penstock.errors import ResourceError
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["ALIGNMENT", "Layout", "aligned", "aligned_zeros"]

ALIGNMENT = 64
"""Bytes of a cache line. Two arrays never share a line, so two writers never slow each other down."""


def aligned(nbytes: int) -> int:
    """``nbytes``, rounded up to a multiple of ``ALIGNMENT``."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def aligned_zeros(nbytes: int) -> Array:
    """Zeros in memory of this process alone, uint8 ``[nbytes]``. They begin at a multiple of ``ALIGNMENT``."""
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + nbytes]


class Layout:
    """Offsets of named arrays.

    Attributes:
        specs: the arrays, in order.
        offsets: name -> offset in bytes, a multiple of ``ALIGNMENT``.
        nbytes: size of all arrays together, a multiple of ``ALIGNMENT``.
    """

    def __init__(self, specs: Sequence[ArraySpec]) -> None:
        self.specs = tuple(specs)
        self.offsets: dict[str, int] = {}
        self.nbytes = 0
        for spec in self.specs:
            if spec.name in self.offsets:
                raise ValueError(f"two arrays are named {spec.name}")
            self.offsets[spec.name] = self.nbytes
            self.nbytes += aligned(spec.nbytes)

    def views(self, bytes: Array, offset: int = 0) -> Arrays:  # noqa: A002 - this package calls memory so
        """Name -> a view into ``bytes[offset:]`` with the array's own shape and dtype.

        Args:
            bytes: ``[n]`` uint8.
            offset: where the layout starts, in bytes.

        Raises:
            ResourceError: ``bytes`` is too short.
        """
        if bytes.size < offset + self.nbytes:
            raise ResourceError(f"arrays need {self.nbytes} bytes from byte {offset} on; the memory has {bytes.size}")
        return {spec.name: _view(bytes, offset + self.offsets[spec.name], spec) for spec in self.specs}


def _view(memory: Array, start: int, spec: ArraySpec) -> Array:
    return memory[start : start + spec.nbytes].view(np.dtype(spec.dtype)).reshape(spec.shape)
