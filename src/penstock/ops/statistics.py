"""Running mean and variance in float64, merged in a fixed order; those of observations. Imports no torch.

Each lane is reduced alone, from a contiguous copy of its own rows. So the bits do not depend on how lanes are split
over slots.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.policies import PolicyGraph
from penstock.policies.features import features_of
from penstock.types import Array, Arrays

__all__ = [
    "EPSILON",
    "VALUE_STATISTICS",
    "Moments",
    "merge",
    "merge_lanes",
    "obs_statistics",
    "same_values",
    "value_statistics",
]

EPSILON = 1e-8
"""Added to a running variance before its root is taken. The native kernels have the same number."""

VALUE_STATISTICS = ("value_mean", "value_var", "value_count")
"""Arrays of a state that normalises values."""


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


def obs_statistics(graph: PolicyGraph, state: Mapping[str, Array], rollout: Mapping[str, Array]) -> Arrays:
    """The running statistics of observations with the valid rows of a rollout ``[T + 1, B, ...]``.

    Args:
        graph: says which fields are normalised; if it normalises none, the result is empty.
        state: ``obs_mean``, ``obs_var``, ``obs_count`` so far.
        rollout: the slot. Its last row belongs to the next rollout.
    """
    if not graph.normalize_obs:
        return {}
    valid = rollout["valid"][:-1]
    moments = Moments(state["obs_mean"], state["obs_var"], state["obs_count"])
    moments = merge_lanes(moments, features_of(graph.encoding, rollout, len(valid)), valid)
    return {"obs_mean": moments.mean, "obs_var": moments.variance, "obs_count": moments.count}


def value_statistics(graph: PolicyGraph, state: Mapping[str, Array], rollout: Mapping[str, Array]) -> Arrays:
    """The running statistics of value targets with the valid rows of a rollout.

    Args:
        graph: says whether values are normalised; if not, the result is empty.
        state: ``value_mean``, ``value_var``, ``value_count`` so far.
        rollout: the slot, with its ``target`` ``[T, B]``.
    """
    if not graph.normalize_value:
        return {}
    moments = Moments(state["value_mean"], state["value_var"], state["value_count"])
    moments = merge_lanes(moments, rollout["target"], rollout["valid"][:-1])
    return {"value_mean": moments.mean, "value_var": moments.variance, "value_count": moments.count}


def same_values(graph: PolicyGraph, before: Mapping[str, Array], after: Mapping[str, Array]) -> Arrays:
    """A last layer of the value that suits new statistics: values stay as they are.

    New statistics alone would change every value, and the next targets are made of values: where returns are far from
    0, each change would make the next one larger.

    Source: van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714, section 2.2.

    Args:
        graph: the result is empty if it normalises no values, or if a module of the user's own gives the value: its
            layers stay as they are.
        before: ``value_mean`` and ``value_var`` as they were.
        after: as they are, and the networks.

    Returns:
        The network with the value, changed once for all rollouts that are merged. If it were rounded after each
        rollout, its bits would depend on how lanes are split over slots.
    """
    head = graph.value_head() if graph.normalize_value else None
    if head is None:
        return {}
    old, new = (np.sqrt(state["value_var"] + EPSILON) for state in (before, after))
    vector: Array = np.array(after[head.network])
    vector[head.weight] *= old / new
    vector[head.bias] = (vector[head.bias] * old + before["value_mean"] - after["value_mean"]) / new
    return {head.network: vector}
