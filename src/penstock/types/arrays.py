"""Named arrays, and what they are before there are any."""

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "ArraySpec", "Arrays", "NoiseSpec"]

Array: TypeAlias = npt.NDArray[Any]


Arrays: TypeAlias = dict[str, Array]
"""Named arrays: a row's fields, a state, a published record."""


@dataclass(frozen=True)
class ArraySpec:
    """Name, shape and dtype of one array. ``dtype`` is a NumPy name, so that a spec stays plain data."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes, without padding."""
        return self.size * np.dtype(self.dtype).itemsize

    def within(self, *leading: int) -> "ArraySpec":
        """The spec of the same array with more leading dimensions."""
        return ArraySpec(self.name, (*leading, *self.shape), self.dtype)


@dataclass(frozen=True)
class NoiseSpec:
    """The noise input of ``act``, for each lane and step. It makes acting a pure function."""

    distribution: Literal["normal", "uniform", "gumbel", "composed"]
    shape: tuple[int, ...]
    parts: tuple["NoiseSpec", ...] = ()
    """``composed`` only: vectors of other distributions, which stand one after the other."""
