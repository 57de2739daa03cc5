"""Running mean and variance in float64, merged in a fixed order. Imports no torch.

Each lane is reduced alone, from a contiguous copy of its own rows. So the bits do not depend on how lanes are split
over slots.
"""

from dataclasses import dataclass

import numpy as np

from penstock.types import Array

__all__ = ["Moments", "merge", "merge_lanes"]


@dataclass(frozen=True)
class Moments:
    """Mean and population variance (float64 ``[...]``) of the values seen so far, and their count (int64 scalar)."""

    mean: Array
    variance: Array
    count: Array


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of both samples together.

    With ``n = n_a + n_b`` and ``d = mean_b - mean_a``: ``mean = mean_a + d n_b / n``,
    ``n var = n_a var_a + n_b var_b + d^2 n_a n_b / n``.

    Source: Chan, Golub and LeVeque 1979, equation 2.1.
    """
    total = int(a.count) + int(b.count)
    if total == 0:
        return a
    share = int(b.count) / total
    delta = b.mean - a.mean
    mean = a.mean + delta * share
    variance = a.variance * (1.0 - share) + b.variance * share + delta**2 * (share * (1.0 - share))
    return Moments(mean, variance, np.asarray(total, np.int64))


def merge_lanes(moments: Moments, values: Array, valid: Array) -> Moments:
    """Merge the valid rows of ``values`` ``[T, B, ...]`` lane by lane; ``valid`` is ``[T, B]`` bool."""
    if values.shape[:2] != valid.shape:
        raise ValueError(f"values {values.shape} and valid {valid.shape} do not agree on [T, B]")
    for lane in range(values.shape[1]):
        rows = values[valid[:, lane], lane]
        if len(rows) == 0:
            continue
        columns = np.ascontiguousarray(rows.reshape(len(rows), -1).T, np.float64)
        mean = columns.mean(axis=1)
        variance = np.square(columns - mean[:, None]).mean(axis=1)
        shape = moments.mean.shape
        lane_moments = Moments(mean.reshape(shape), variance.reshape(shape), np.asarray(len(rows), np.int64))
        moments = merge(moments, lane_moments)
    return moments
