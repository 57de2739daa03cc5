"""Specs of dm_env_rpc as spaces."""

from typing import Any

import numpy as np

__all__ = ["space_of"]

_MOST_CHOICES = 1 << 16
"""Whole numbers of a wider range are a Box."""


def space_of(spec: Any) -> Any:
    """The space of one tensor of numbers."""
    from gymnasium.spaces import Box, Discrete  # noqa: PLC0415

    if not spec.shape and spec.dtype.kind in "iu" and (choices := _choices(spec)) is not None:
        first, count = choices
        return Discrete(count, start=first)
    if spec.dtype.kind == "b":
        return Box(0, 1, spec.shape, np.uint8)
    limits: Any = np.finfo(spec.dtype) if spec.dtype.kind == "f" else np.iinfo(spec.dtype)
    low, high = getattr(spec, "minimum", limits.min), getattr(spec, "maximum", limits.max)
    if spec.dtype.kind == "f":
        # The protocol has no other way to say that a side has no bound.
        low, high = np.where(low <= limits.min, -np.inf, low), np.where(high >= limits.max, np.inf, high)
    bounds = [np.broadcast_to(np.asarray(side, spec.dtype), spec.shape) for side in (low, high)]
    return Box(bounds[0], bounds[1], dtype=spec.dtype.type)


def _choices(spec: Any) -> tuple[int, int] | None:
    """The first of a number's choices, and how many there are. ``None``: the number is a Box, not a choice."""
    if hasattr(spec, "num_values"):
        first, count = 0, int(spec.num_values)
    elif hasattr(spec, "minimum"):
        first, count = int(spec.minimum), int(spec.maximum) - int(spec.minimum) + 1
    else:
        return None
    return (first, count) if count <= _MOST_CHOICES else None
