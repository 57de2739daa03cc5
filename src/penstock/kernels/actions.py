"""Converts stored actions from the policy's units to the environment's units and dtype. Generates random actions.

The bound native policy converts its own actions without a call, bit for bit the same.
"""

import numpy as np

from penstock.kernels.noise import uniform
from penstock.types import ActionSpace, Array, Box, Composite, Discrete, Leaf, MultiDiscrete

__all__ = ["bounds_of", "environment_array", "from_environment", "generate_actions", "leaf_arrays", "to_environment"]


def bounds_of(space: Box) -> tuple[Array, Array]:
    """Lower and upper bound of every element of a box: float64 ``[size]`` each."""
    return (
        np.broadcast_to(np.asarray(space.low, np.float64), (space.size,)),
        np.broadcast_to(np.asarray(space.high, np.float64), (space.size,)),
    )


def environment_array(space: ActionSpace, n: int) -> Array:
    """An array for the actions of n lanes in the environment's units: ``[n, ...]`` of the space's dtype.

    For a Composite it is float64 ``[n, size]``, with the elements of all leaves one after the other.
    """
    match space:
        case Box() | MultiDiscrete():
            return np.zeros((n, *space.shape), space.dtype)
        case Discrete():
            return np.zeros(n, np.int64)
        case Composite():
            return np.zeros((n, space.size), np.float64)


def to_environment(action: Array, space: ActionSpace, out: Array) -> Array:
    """Write stored actions into ``out`` in the environment's units.

    - A bounded box: ``low + (clip(action, -1, 1) + 1) / 2 * (high - low)`` in float64, then cast. For a box of integers
      the result is rounded to the nearest, and a NaN becomes the lower bound.
    - A box where some bounds are finite: ``clip(action, low, high)`` in float64, then cast and rounded in the same way.
      For a box of integers a NaN becomes the number within the bounds that is nearest to 0.
    - A box without bounds: the action, cast. For a box of integers it is rounded, and a NaN becomes 0.
    - Discrete and MultiDiscrete: ``action + start``.
    - Composite: each leaf as above.

    Args:
        action: ``[n, ...]``, as `Spaces.action_spec` describes it.
        space: the environment's action space.
        out: ``[n, ...]``; see `environment_array`.

    Returns:
        ``out``.
    """
    if isinstance(space, Discrete):
        np.add(action, space.start, out=out, casting="unsafe")
        return out
    values = action.reshape(len(action), space.size)
    if isinstance(space, Composite):
        for leaf, columns in space.columns():
            out[:, columns] = _in_units(values[:, columns], leaf)
    else:
        out[...] = _in_units(values, space).reshape(out.shape)
    return out


def leaf_arrays(action: Array, space: Composite) -> list[Array]:
    """The leaves ``[n, ...]`` of actions ``[n, size]`` in the environment's units, in their own shapes and dtypes."""
    return [_shaped(action[:, columns], leaf) for leaf, columns in space.columns()]


def _shaped(values: Array, leaf: Leaf) -> Array:
    if isinstance(leaf, Discrete):
        return values[:, 0].astype(np.int64)
    return values.astype(leaf.dtype).reshape(len(values), *leaf.shape)


def _in_units(values: Array, space: Leaf) -> Array:
    """Stored elements ``[n, size]`` of one leaf in the environment's units, before the cast to its dtype."""
    if isinstance(space, Discrete):
        return np.add(values, space.start)
    if isinstance(space, MultiDiscrete):
        return np.add(values, space.starts)
    values = values.astype(np.float64)
    otherwise: Array | float = 0.0
    if space.bounded:
        low, high = bounds_of(space)
        values = np.minimum(low + (np.clip(values, -1.0, 1.0) + 1.0) / 2.0 * (high - low), high)
        otherwise = low
    elif space.partly_bounded:
        low, high = bounds_of(space)
        values, otherwise = _within(values, low, high), np.clip(0.0, low, high)
    if not np.issubdtype(np.dtype(space.dtype), np.floating):
        # The bound 2^63 - 1 is 2^63 as a float, which no integer of 64 bits holds.
        largest = np.nextafter(float(np.iinfo(space.dtype).max) + 1.0, 0.0)
        values = np.minimum(np.rint(np.where(np.isnan(values), otherwise, values)), largest)
    return values


def _within(values: Array, low: Array, high: Array) -> Array:
    """The values cut to their bounds. A NaN, and a zero of either sign that is within them, stays as it is."""
    values = np.where(values < low, low, values)
    return np.where(values > high, high, values)


def from_environment(action: Array, space: Box | Discrete) -> Array:
    """Actions as rows store them, for actions in the environment's units: the inverse of `to_environment`.

    Rounding by the environment's dtype is not undone. An action outside of a bounded box is cut to its bounds.

    Args:
        action: ``[n, ...]`` in the environment's units.
        space: the environment's action space.

    Returns:
        ``[n, ...]``, as `Spaces.action_spec` describes it.
    """
    if isinstance(space, Discrete):
        return np.subtract(action, space.start, dtype=np.int64)
    values = action.reshape(len(action), space.size).astype(np.float64)
    if space.bounded:
        low, high = bounds_of(space)
        # A box may be a single point in some element.
        width = np.where(high > low, high - low, 1.0)
        values = np.clip((values - low) / width, 0.0, 1.0) * 2.0 - 1.0
    return values.reshape(action.shape).astype(np.float32)


def generate_actions(
    space: ActionSpace, seed: int, lanes: Array, step: int, out: Array, *, mask: Array | None = None
) -> None:
    """Write uniform random actions as rows store them: -1 to 1 for a box, 0 to n - 1 for an element of n choices.

    Args:
        space: the environment's action space.
        seed: key of the numbers, together with lane and step.
        lanes: ``[n]`` int64.
        step: number of the lanes' step.
        out: ``[n, ...]``, as `Spaces.action_spec` describes it.
        mask: ``[n, sum(space.choices)]``, 0 where a choice is not possible; such choices are not generated. ``None``:
            all are possible.
    """
    numbers = uniform(seed, lanes, step, space.size)
    if isinstance(space, Composite):
        first = 0
        for leaf, columns in space.columns():
            last = first + sum(leaf.choices)
            out[:, columns] = _spread(numbers[:, columns], leaf, None if mask is None else mask[:, first:last])
            first = last
    else:
        out[...] = _spread(numbers, space, mask).reshape(out.shape)


def _spread(numbers: Array, space: Leaf, mask: Array | None) -> Array:
    """Uniform numbers ``[n, size]`` in [0, 1) as stored elements of one leaf."""
    if isinstance(space, Box):
        return np.subtract(np.multiply(2.0, numbers), 1.0)
    if mask is not None:
        elements = np.split(mask, np.cumsum(space.choices)[:-1], axis=1)
        return np.stack([_possible(own, of) for own, of in zip(numbers.T, elements, strict=True)], axis=1)
    # In float64 the product is exact: it never rounds up to the number of choices.
    return np.floor(np.multiply(numbers, space.choices, dtype=np.float64))


def _possible(numbers: Array, mask: Array) -> Array:
    """The possible choice number ``floor(number * count)`` of each row: ``[n]`` for numbers ``[n]`` in [0, 1)."""
    counted = np.cumsum(mask != 0, axis=1)
    wanted = np.floor(np.multiply(numbers, counted[:, -1], dtype=np.float64))
    found: Array = (counted > wanted[:, None]).argmax(axis=1)
    return found
