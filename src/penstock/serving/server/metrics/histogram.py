"""Histogram: counts values by upper bounds, as Prometheus reads them."""

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["ROWS", "SECONDS", "Histogram"]

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Bounds for times."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Bounds for the rows of batches."""


class Histogram:
    """Counts values by upper bounds. A value at a bound belongs below it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and number of values up to it, as Prometheus wants them."""
        found, below = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else str(float(bound)), float(below)))
        return found
