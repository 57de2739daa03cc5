"""Converts stored actions from the policy's units to the environment's units and dtype. Generates random actions.

The bound native policy converts its own actions without a call, bit for bit the same.
"""

import numpy as np

from penstock.kernels.noise import uniform
from penstock.types import Array, Box, Space

__all__ = ["bounds_of", "environment_array", "generate_actions", "to_environment"]


def bounds_of(space: Box) -> tuple[Array, Array]:
    """Lower and upper bound of every element of a box: float64 ``[size]`` each."""
    return (
        np.broadcast_to(np.asarray(space.low, np.float64), (space.size,)),
        np.broadcast_to(np.asarray(space.high, np.float64), (space.size,)),
    )


def environment_array(space: Space, n: int) -> Array:
    """An array for the actions of n lanes in the environment's units: ``[n, ...]`` of the space's dtype."""
    if isinstance(space, Box):
        return np.zeros((n, *space.shape), space.dtype)
    return np.zeros(n, np.int64)


def to_environment(action: Array, space: Space, out: Array) -> Array:
    """Write stored actions into ``out`` in the environment's units.

    - A bounded box: ``low + (clip(action, -1, 1) + 1) / 2 * (high - low)`` in float64, then cast. For a box of integers
      the result is rounded to the nearest, and a NaN becomes the lower bound.
    - Any other box: the action, cast.
    - Discrete: ``action + start``.

    Args:
        action: ``[n, ...]`` float32 policy units, or int64 from 0.
        space: the environment's action space.
        out: ``[n, ...]``; see `environment_array`.

    Returns:
        ``out``.
    """
    if not isinstance(space, Box):
        np.add(action, space.start, out=out, casting="unsafe")
        return out
    values = action.astype(np.float64).reshape(len(action), space.size)
    otherwise: Array | float = 0.0
    if space.bounded:
        low, high = bounds_of(space)
        values = np.minimum(low + (np.clip(values, -1.0, 1.0) + 1.0) / 2.0 * (high - low), high)
        otherwise = low
    if not np.issubdtype(out.dtype, np.floating):
        values = np.rint(np.where(np.isnan(values), otherwise, values))
    out[...] = values.reshape(out.shape)
    return out


def generate_actions(space: Space, seed: int, lanes: Array, step: int, out: Array) -> None:
    """Write uniform random actions as rows store them: -1 to 1 for a box, 0 to n - 1 for a Discrete.

    Args:
        space: the environment's action space.
        seed: key of the numbers, together with lane and step.
        lanes: ``[n]`` int64.
        step: number of the lanes' step.
        out: ``[n, ...]`` float32 for a box, else int64.
    """
    if isinstance(space, Box):
        out[...] = (2.0 * uniform(seed, lanes, step, space.size) - 1.0).reshape(out.shape)
    else:
        # In float64 the product is exact: it never rounds up to n.
        out[...] = np.floor(uniform(seed, lanes, step, 1)[:, 0].astype(np.float64) * space.n)
