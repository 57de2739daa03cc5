"""From a stored action, in the policy's own units, to the environment's units and dtype. Samples nothing.

The bound native policy does the same, bit for bit, without a call of its own.
"""

import numpy as np

from penstock.types import Array, Box, Space

__all__ = ["bounds_of", "environment_array", "to_environment"]


def bounds_of(space: Box) -> tuple[Array, Array]:
    """Lower and upper bound of every element of a box: float64 ``[size]`` each."""
    return (
        np.broadcast_to(np.asarray(space.low, np.float64), (space.size,)),
        np.broadcast_to(np.asarray(space.high, np.float64), (space.size,)),
    )


def environment_array(space: Space, n: int) -> Array:
    """An array for the actions of n lanes as the environment wants them: ``[n, ...]`` of the space's dtype."""
    if isinstance(space, Box):
        return np.zeros((n, *space.shape), space.dtype)
    return np.zeros(n, np.int64)


def to_environment(action: Array, space: Space, out: Array) -> Array:
    """Write stored actions into ``out`` as the environment wants them.

    A bounded box: ``low + (clip(action, -1, 1) + 1) / 2 * (high - low)``, in float64, then cast; integers are rounded
    to the nearest, and a NaN becomes the lower bound. Any other box: the action, cast. Discrete: ``action + start``.

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
