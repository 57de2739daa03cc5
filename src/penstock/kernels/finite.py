"""Which numbers networks can compute with."""

import numpy as np

from penstock.types import Array

__all__ = ["are_finite"]

_LARGEST = float(np.finfo(np.float32).max)


def are_finite(values: Array) -> Array:
    """Where floats are neither NaN nor infinite as float32, in which networks compute. Bools of the same shape."""
    found: Array = np.abs(values) <= _LARGEST if values.dtype == np.float64 else np.isfinite(values)
    return found
