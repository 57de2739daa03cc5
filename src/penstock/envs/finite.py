"""Where arrays hold NaN or infinity. What is done about it, others decide."""

import numpy as np

from penstock.types import Array

__all__ = ["not_finite"]


def not_finite(values: Array) -> list[tuple[int, ...]]:
    """Where the first NaN or infinity is, along the first axis; empty if there is none."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return []
    return [tuple(map(int, np.argwhere(~np.isfinite(values))[0]))]
