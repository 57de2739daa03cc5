"""How the numbers of an array are spread, for TensorBoard. Writes nothing."""

from typing import NamedTuple

import numpy as np

from penstock.metrics.report import Report
from penstock.types import Array

__all__ = ["Histogram", "Histograms", "Part", "histogram"]

BINS = 30


class Part(NamedTuple):
    """A part of an array that has a histogram of its own."""

    name: str
    array: str
    """Name of the array."""
    first: int
    """Index of its first number in the flat array."""
    size: int
    """How many numbers it has."""


class Histogram(NamedTuple):
    """How the numbers of an array are spread over parts of equal width. Counts neither NaN nor infinity."""

    smallest: float
    largest: float
    total: float
    """Their sum."""
    squares: float
    """The sum of their squares."""
    limits: Array
    """float64 ``[n]``: the upper end of each part."""
    counts: Array
    """int64 ``[n]``: how many numbers lie in each part."""


class Histograms(NamedTuple):
    """Histograms of the state of one update."""

    at: Report
    """The update, its steps and its seconds; without metrics."""
    parts: dict[str, Histogram]
    """Name -> histogram."""


def histogram(values: Array) -> Histogram | None:
    """The histogram of an array of any shape; ``None`` if it has no finite number."""
    numbers = values.ravel().astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return None
    counts, edges = np.histogram(numbers, BINS)
    smallest, largest = float(numbers.min()), float(numbers.max())
    return Histogram(smallest, largest, float(numbers.sum()), float(numbers @ numbers), edges[1:], counts)
