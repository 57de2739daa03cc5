"""The kinds of one number for many: how each is found. Reads and writes nothing."""

from collections.abc import Callable, Mapping

import numpy as np

from penstock.types import Array

__all__ = ["AGGREGATIONS", "quantile"]

AGGREGATIONS: Mapping[str, Callable[[Array], float]] = {
    "mean": lambda values: float(values.mean()),
    "sum": lambda values: float(values.sum()),
    "min": lambda values: float(values.min()),
    "max": lambda values: float(values.max()),
}
"""Kind -> how it is found from values ``[n]``, at least one. There are also quantiles, which need a share."""


def quantile(values: Array, share: float) -> float:
    """The number that this share of the values ``[n]`` does not exceed. Between two values it is interpolated.

    Source: Hyndman and Fan 1996, https://doi.org/10.2307/2684934, definition 7.
    """
    return float(np.quantile(values, share))
