"""Cuts the actions of one step of all lanes into one action for each environment, or into one batch for all of them.

An environment may keep its action, for a penalty on changes or a queue of delays. So an array is never written again
while an environment holds it.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from penstock.kernels.actions import leaf_arrays
from penstock.types import ActionSpace, Array, Composite, Discrete, LeafPath

__all__ = ["Cut", "batched", "cutter"]

Cut: TypeAlias = Callable[[Array], Iterable[Any]]
"""``[B, ...]`` to one action a lane."""


def cutter(space: ActionSpace, num_lanes: int) -> Cut:
    """A function that cuts actions ``[B, ...]``, in the environment's own units, into one for each lane."""
    match space:
        case Discrete():
            return _integers(space)
        case Composite():
            return _structures(space)
        case _:
            return _boxes(space.shape, space.dtype, num_lanes)


def batched(space: Composite, action: Array) -> Any:
    """Actions ``[B, size]`` in the environment's own units as one dict or tuple of new arrays ``[B, ...]``."""
    return _built([path for path, _ in space.leaves], leaf_arrays(action, space))


def _integers(space: Discrete) -> Cut:
    # Gymnasium's own `sample` gives np.int64, so every environment accepts it. The scalars are made once, because
    # iterating over an array makes new ones for 180 ns each.
    scalars = {value: np.int64(value) for value in range(space.start, space.start + space.n)}
    lookup = scalars.__getitem__

    def cut(action: Array) -> Iterable[Any]:
        return map(lookup, action.tolist())

    return cut


def _structures(space: Composite) -> Cut:
    """Give each lane a dict or tuple of its own. Its arrays are made anew in each step."""
    paths = [path for path, _ in space.leaves]
    scalar = [isinstance(leaf, Discrete) for _, leaf in space.leaves]

    def cut(action: Array) -> Iterable[Any]:
        arrays = leaf_arrays(action, space)
        for lane in range(len(action)):
            # `array[lane]` is a scalar, as a Discrete wants it; `array[lane, ...]` is always an array.
            values = [array[lane] if one else array[lane, ...] for array, one in zip(arrays, scalar, strict=True)]
            yield _built(paths, values)

    return cut


def _built(paths: Sequence[LeafPath], values: Sequence[Any]) -> Any:
    """The nested dict or tuple whose leaves have these paths and values, in this order."""
    if not paths[0]:
        return values[0]
    inner: dict[str | int, tuple[list[LeafPath], list[Any]]] = {}
    for (key, *rest), value in zip(paths, values, strict=True):
        below = inner.setdefault(key, ([], []))
        below[0].append(tuple(rest))
        below[1].append(value)
    built = {key: _built(*below) for key, below in inner.items()}
    return tuple(built.values()) if isinstance(paths[0][0], int) else built


def _boxes(shape: tuple[int, ...], dtype: str, num_lanes: int) -> Cut:
    """Give rows of one array. The array is used again unless someone else holds it or one of its rows.

    A held row raises its own reference count; a view of a row raises the count of the array. Reading these counts costs
    40 ns a lane; making new rows each step would cost 250.
    """
    block = np.empty((num_lanes, *shape), dtype)
    rows = [block[lane, ...] for lane in range(num_lanes)]
    held = _references(block, rows)

    def cut(action: Array) -> Iterable[Any]:
        nonlocal block, rows
        if _references(block, rows) != held:
            block = np.empty_like(block)
            rows = [block[lane, ...] for lane in range(num_lanes)]
        block[...] = action
        return rows

    return cut


def _references(block: Array, rows: list[Array]) -> int:
    return sys.getrefcount(block) + sum(map(sys.getrefcount, rows))
