"""One vector step's actions, cut into what each lane's environment is given.

An environment may keep what it is given (a penalty on the change of action, a queue of delayed actions), so nothing
that somebody still holds is ever written again.
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
    """What cuts actions ``[B, ...]``, in the environment's own units, into one a lane."""
    return _integers(space) if isinstance(space, Discrete) else _boxes(space.shape, space.dtype, num_lanes)


def _integers(space: Discrete) -> Cut:
    # np.int64 is what Gymnasium's own `sample` gives, so every environment has seen it; the scalars are made once,
    # because iterating over an array makes new ones for 180 ns each.
    scalars = {value: np.int64(value) for value in range(space.start, space.start + space.n)}
    lookup = scalars.__getitem__

    def cut(action: Array) -> Iterable[Any]:
        return map(lookup, action.tolist())

    return cut


def _boxes(shape: tuple[int, ...], dtype: str, num_lanes: int) -> Cut:
    """Rows of one array, which is used again only while nobody else holds the array or one of its rows.

    A row that is kept raises its own reference count, a view of a row that of the array. Making new rows each step
    would cost 250 ns a lane, asking for the counts costs 40.
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
