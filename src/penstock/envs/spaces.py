"""Spaces of Gymnasium, and of the older API by the names of their classes, as plain data.

It imports neither package, and it makes no policy: what a network can take in is not its question.
"""

from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from penstock.errors import SpaceError
from penstock.types import Box, Discrete, Space, Spaces, Stack

__all__ = ["FieldPath", "field_paths", "one_line", "spaces_of"]

FieldPath = tuple[str, ...]
"""The keys that lead to one field of an observation; empty for a plain one."""

_OBSERVATIONS = "an observation may be a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict of those"
_ACTIONS = "an action may be a Box or Discrete"


def spaces_of(observation_space: Any, action_space: Any, stack: Stack | None = None) -> Spaces:
    """The spaces of one lane as plain data.

    Args:
        observation_space: of one environment. A MultiDiscrete or MultiBinary counts as a Box of integers.
        action_space: of one environment.
        stack: what the fields are whose first axis has so many frames.

    Raises:
        SpaceError: naming the space and what is supported.
    """
    leaves = [(_field_name(path), _stacked(_observed(space), stack)) for path, space in _leaves(observation_space)]
    obs = dict(sorted(leaves, key=itemgetter(0)))
    if not obs or len(obs) < len(leaves):
        what = "has two keys of one name" if obs else "is empty"
        raise SpaceError(f"observation space {one_line(observation_space)} {what}: {_OBSERVATIONS}")
    return Spaces(tuple(obs.items()), _acted(action_space))


def field_paths(observation_space: Any) -> dict[str, FieldPath]:
    """Field name -> keys, in the order of ``Spaces.obs``."""
    return dict(sorted((_field_name(path), path) for path, _ in _leaves(observation_space)))


def one_line(value: object, limit: int = 120) -> str:
    """What an object says of itself, on one line of bounded length."""
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _kind(space: Any) -> str:
    """The name of the supported class that a space is an instance of, or of its own class."""
    names = [base.__name__ for base in type(space).__mro__]
    known = ("Box", "Discrete", "Dict", "MultiDiscrete", "MultiBinary")
    return next((name for name in names if name in known), names[0])


def _leaves(space: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    if _kind(space) != "Dict":
        yield path, space
        return
    for key, inner in space.spaces.items():
        yield from _leaves(inner, (*path, key))


def _field_name(path: FieldPath) -> str:
    return ".".join(("obs", *map(str, path)))


def _observed(space: Any) -> Space:
    kind = _kind(space)
    if kind == "Box":
        return _box(space)
    if kind == "Discrete":
        return _discrete(space)
    shape = tuple(map(int, getattr(space, "shape", None) or ()))
    if kind == "MultiBinary":
        return Box(shape, np.dtype(space.dtype).name, (0.0,), (1.0,))
    if kind == "MultiDiscrete":
        start = np.asarray(getattr(space, "start", 0))
        return Box(shape, np.dtype(space.dtype).name, _bounds(start), _bounds(start + space.nvec - 1))
    raise SpaceError(f"observation space {one_line(space)} is not supported: {_OBSERVATIONS}")


def _stacked(space: Space, stack: Stack | None) -> Space:
    if stack is None or isinstance(space, Discrete) or space.shape[:1] != (stack.frames,):
        return space
    return replace(space, stack=stack)


def _acted(space: Any) -> Space:
    kind = _kind(space)
    if kind == "Discrete":
        return _discrete(space)
    if kind == "Box":
        return _box(space)
    raise SpaceError(f"action space {one_line(space)} is not supported: {_ACTIONS}")


def _box(space: Any) -> Box:
    dtype = np.dtype(space.dtype)
    shape = tuple(map(int, space.shape))
    if dtype.kind not in "biuf" or 0 in shape:
        raise SpaceError(f"space {one_line(space)} is not supported: a Box holds at least one number")
    return Box(shape, dtype.name, _bounds(space.low), _bounds(space.high))


def _discrete(space: Any) -> Discrete:
    # The older API's Discrete counts from 0 and has no `start`.
    return Discrete(int(space.n), int(getattr(space, "start", 0)))


def _bounds(values: Any) -> tuple[float, ...]:
    """One bound where all are equal, else one each, in C order."""
    flat = np.asarray(values).ravel()
    if (flat == flat[0]).all():
        return (float(flat[0]),)
    return tuple(map(float, flat))
