"""Percentile bootstrap of means. Knows no run.

Source: B. Efron and R. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13. Each side of a comparison is
resampled on its own, so each is a stratum.
"""

from typing import NamedTuple

import numpy as np

from penstock.types import Array

__all__ = ["CONFIDENCE", "Estimate", "difference", "estimate", "resampled_means"]

CONFIDENCE = 0.95
"""Share of the resampled means that lie in an interval."""
_AT_ONCE = 1 << 20
"""Numbers resampled in one call, which bounds the memory."""


class Estimate(NamedTuple):
    """A mean and its interval. Without an interval, ``low`` and ``high`` are ``None``."""

    value: float
    low: float | None = None
    high: float | None = None


def resampled_means(sample: Array, count: int, generator: np.random.Generator) -> Array:
    """Means of ``count`` resamples with replacement, each as large as the sample: float64 ``[count]``.

    Args:
        sample: float64 ``[n]``, n at least 1.
        count: how many.
        generator: chooses the elements.
    """
    size = len(sample)
    rows = max(1, _AT_ONCE // size)
    parts = [
        sample[generator.integers(size, size=(min(rows, count - begin), size))].mean(axis=1)
        for begin in range(0, count, rows)
    ]
    return np.concatenate(parts)


def estimate(value: float, sample: Array, count: int, generator: np.random.Generator) -> Estimate:
    """``value`` with the interval of the mean of a sample; without an interval if the sample has less than two."""
    if len(sample) < 2:
        return Estimate(value)
    return _with_interval(value, resampled_means(sample, count, generator))


def difference(value: float, sample: Array, other: Array, count: int, generator: np.random.Generator) -> Estimate:
    """``value`` with the interval of ``mean(sample) - mean(other)``; without one if either has less than two."""
    if min(len(sample), len(other)) < 2:
        return Estimate(value)
    means = resampled_means(sample, count, generator) - resampled_means(other, count, generator)
    return _with_interval(value, means)


def _with_interval(value: float, means: Array) -> Estimate:
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, float(low), float(high))
