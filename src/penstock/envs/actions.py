"""Cuts the actions of one step of all lanes into one action for each environment.

An environment may keep its action, for a penalty on changes or a queue of delays. So an array is never written again
while an environment holds it.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from penstock.types import Array, Discrete, Space

__all__ = ["Cut", "cutter"]

Cut: TypeAlias = Callable[[Array], Iterable[Any]]
"""``[B, ...]`` to one action a lane."""


def cutter(space: Space, num_lanes: int) -> Cut:
    """A function that cuts actions ``[B, ...]``, in the environment's own units, into one for each lane."""
    return _integers(space) if isinstance(space, Discrete) else _boxes(space.shape, space.dtype, num_lanes)


def _integers(space: Discrete) -> Cut:
    # Gymnasium's own `sample` gives np.int64, so every environment accepts it. The scalars are made once, because
    # iterating over an array makes new ones for 180 ns each.
    scalars = {value: np.int64(value) for value in range(space.start, space.start + space.n)}
    lookup = scalars.__getitem__

    def cut(action: Array) -> Iterable[Any]:
        return map(lookup, action.tolist())

    return cut


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
