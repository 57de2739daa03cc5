"""What kept episodes tell about a policy that did not play them, and how far two samples differ. Holds no state.

Fitted Q evaluation: Le, Voloshin and Yue 2019, https://arxiv.org/abs/1903.08738. Its regression is linear here, over
random features, and targets are kept within what rewards can sum up to.
"""

import math
from typing import NamedTuple

import numpy as np

from penstock.types import Array

__all__ = ["Transitions", "fitted_values", "largest_shift", "random_features"]

_RIDGE = 1e-3
"""Weight of the penalty for each row. It decides about actions that were hardly ever tried."""
_REST = 0.01
"""Iterations stop once later rewards make up only this share of the value."""
_MOST_ITERATIONS = 2000


class Transitions(NamedTuple):
    """Features of n steps that were played, and of what a policy would have done after each."""

    features: Array
    """``[n, p]`` of observation and action."""
    next_features: Array
    """``[n, p]`` of the next observation and the policy's own action there."""
    reward: Array
    """``[n]``."""
    terminated: Array
    """``[n]`` bool: no value comes after the reward."""


def fitted_values(transitions: Transitions, starts: Array, gamma: float) -> Array:
    """Estimate the discounted return of a policy from episodes that others have played.

    ``Q`` is fitted again and again to ``r + gamma Q(s', pi(s'))``, by least squares with a ridge. Where nothing was
    tried, the estimate is near the mean.

    Args:
        transitions: of the policy.
        starts: ``[m, p]``: features of first observations and the policy's own actions there.
        gamma: discount of a step, in [0, 1].

    Returns:
        float64 ``[m]``.
    """
    features, following, reward, terminated = transitions
    n, p = features.shape
    iterations = _MOST_ITERATIONS
    if gamma < 1.0:
        iterations = min(iterations, 2 + math.ceil(math.log(_REST) / math.log(max(gamma, _REST))))
    horizon = min(_MOST_ITERATIONS, 1.0 / (1.0 - gamma) if gamma < 1.0 else math.inf)
    low, high = min(0.0, float(reward.min())) * horizon, max(0.0, float(reward.max())) * horizon
    discount = gamma * ~terminated
    solved = np.linalg.solve(features.T @ features + _RIDGE * n * np.eye(p), features.T)
    weights, mean = np.zeros(p), 0.0
    for _ in range(iterations):
        target = reward + discount * np.clip(following @ weights + mean, low, high)
        mean = float(target.mean())
        weights = solved @ (target - mean)
    values: Array = np.clip(starts @ weights + mean, low, high)
    return values


def random_features(values: Array, count: int, seed: int) -> Array:
    """Cosines of random projections: smooth functions whose sums may take any shape.

    Source: Rahimi and Recht 2007, "Random features for large-scale kernel machines".

    Args:
        values: ``[n, d]``, of deviation about 1.
        count: number of features.
        seed: of the projections.

    Returns:
        ``[n, count]``.
    """
    generator = np.random.default_rng(seed)
    width = values.shape[1]
    projections = generator.normal(0.0, 1.0 / math.sqrt(max(1, width)), (width, count))
    found: Array = math.sqrt(2.0 / count) * np.cos(values @ projections + generator.uniform(0.0, 2 * math.pi, count))
    return found


def largest_shift(before: Array, after: Array) -> float:
    """How far two samples differ: the largest Kolmogorov-Smirnov distance of a column.

    Args:
        before: ``[n, d]``, n at least 1.
        after: ``[m, d]``, m at least 1.

    Returns:
        In [0, 1]: the largest difference, over all x, between the two samples' shares of values that are at most x.
    """
    largest = 0.0
    for first, second in zip(before.T, after.T, strict=True):
        both = np.concatenate([first, second])
        shares = [np.searchsorted(np.sort(one), both, "right") / len(one) for one in (first, second)]
        largest = max(largest, float(np.abs(shares[0] - shares[1]).max()))
    return largest
