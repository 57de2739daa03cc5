"""Turns spaces of Gymnasium and of the older API into plain data, by the names of their classes.

Imports neither package. Does not decide which spaces a policy supports.
"""

import math
import platform
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.envs.fields import kind_of, one_line, used_fields
from penstock.errors import SpaceError
from penstock.types import (
    ActionSpace,
    Array,
    Box,
    Composite,
    Discrete,
    Leaf,
    LeafPath,
    MultiDiscrete,
    Space,
    Spaces,
    Stack,
)

__all__ = ["check_same_arrays", "spaces_of"]

_BRANCHES = ("Dict", "Tuple")
_ACTIONS = "an action may be a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of those"


def spaces_of(
    observation_space: Any, action_space: Any, stack: Stack | None = None, ignore_obs: Sequence[str] = ()
) -> Spaces:
    """The spaces of one lane as plain data.

    Args:
        observation_space: of one environment. A MultiDiscrete or MultiBinary counts as a Box of integers.
        action_space: of one environment.
        stack: how frames are stacked. It applies to each field whose first axis has as many frames.
        ignore_obs: fields to leave out, as in ``used_fields``.

    Raises:
        ConfigError: ``ignore_obs`` names an unknown field, or leaves none.
        SpaceError: a space is not supported. The text names it and lists the supported ones.
    """
    fields = used_fields(observation_space, ignore_obs)
    obs = tuple((name, _stacked(_observed(space), stack)) for name, space in fields.items())
    return Spaces(obs, _acted(action_space))


def check_same_arrays(name: str, found: Spaces, planned: Spaces) -> None:
    """Check that an environment has the arrays that its run was planned with. Bounds and numbers of frames may differ.

    Args:
        name: of the environment.
        found: of the environment that was made here.
        planned: of the run.

    Raises:
        SpaceError: it has others. The text names this machine.
    """
    here, there = _arrays_of(found.newest()), _arrays_of(planned.newest())
    if here != there:
        differ = [part for part in sorted(here.keys() | there.keys()) if here.get(part) != there.get(part)]
        told = ", ".join(f"{part} {here.get(part, 'missing')} instead of {there.get(part, 'none')}" for part in differ)
        raise SpaceError(
            f"environment {name} differs on machine {platform.node()} from that of the run: {told}; "
            "install the same version of it on every machine, and let each instance have the same spaces"
        )


def _arrays_of(spaces: Spaces) -> dict[str, str]:
    arrays = {spec.name: f"{spec.dtype} {list(spec.shape)}" for spec in (*spaces.obs_specs(), spaces.action_spec())}
    choices = spaces.action.choices
    return {**arrays, "action": f"{arrays['action']} of {list(choices)} choices"} if choices else arrays


def _observed(space: Any) -> Space:
    kind = kind_of(space)
    if kind == "Box":
        return _box(space)
    if kind == "Discrete":
        return _discrete(space)
    shape = tuple(map(int, getattr(space, "shape", None) or ()))
    if kind == "MultiBinary":
        return Box(shape, np.dtype(space.dtype).name, (0.0,), (1.0,))
    # `used_fields` refuses all other kinds, so this is a MultiDiscrete.
    start = np.asarray(getattr(space, "start", 0))
    return Box(shape, np.dtype(space.dtype).name, _bounds(start), _bounds(start + space.nvec - 1))


def _stacked(space: Space, stack: Stack | None) -> Space:
    if stack is None or isinstance(space, Discrete) or space.shape[:1] != (stack.frames,):
        return space
    return replace(space, stack=stack)


def _acted(space: Any) -> ActionSpace:
    if kind_of(space) not in _BRANCHES:
        return _leaf(space, space)
    leaves = tuple((path, _leaf(leaf, space)) for path, leaf in _leaves(space, space))
    names = {".".join(map(str, path)) for path, _ in leaves}
    if len(names) < len(leaves):
        raise SpaceError(f"action space {one_line(space)} has two parts of one name: {', '.join(sorted(names))}")
    return Composite(leaves)


def _leaves(space: Any, whole: Any, path: LeafPath = ()) -> Iterator[tuple[LeafPath, Any]]:
    kind = kind_of(space)
    if kind not in _BRANCHES:
        yield path, space
        return
    inner = list(space.spaces.items() if kind == "Dict" else enumerate(space.spaces))
    if not inner or (kind == "Dict" and not all(isinstance(key, str) for key, _ in inner)):
        what = "has a key that is no text" if inner else "has an empty part"
        raise SpaceError(f"action space {one_line(whole)} {what}: {_ACTIONS}")
    for key, part in inner:
        yield from _leaves(part, whole, (*path, key))


def _leaf(space: Any, whole: Any) -> Leaf:
    match kind_of(space):
        case "Discrete":
            return _discrete(space)
        case "Box":
            return _box(space)
        case "MultiDiscrete" if np.size(space.nvec):
            sizes = np.asarray(space.nvec)
            starts = np.broadcast_to(np.asarray(getattr(space, "start", 0)), sizes.shape)
            return MultiDiscrete(_integers(sizes), _integers(starts), sizes.shape, np.dtype(space.dtype).name)
        case "MultiBinary" if math.prod(space.shape):
            count, shape = math.prod(space.shape), tuple(map(int, space.shape))
            return MultiDiscrete((2,) * count, (0,) * count, shape, np.dtype(space.dtype).name)
    raise SpaceError(f"action space {one_line(whole)} is not supported: {_ACTIONS}")


def _integers(values: Array) -> tuple[int, ...]:
    return tuple(map(int, values.ravel()))


def _box(space: Any) -> Box:
    dtype = np.dtype(space.dtype)
    shape = tuple(map(int, space.shape))
    if dtype.kind not in "biuf" or 0 in shape:
        raise SpaceError(f"space {one_line(space)} is not supported: a Box holds at least one number")
    # No kernel reads other floats than float32 and float64. So half becomes float32, and long double float64.
    name = {"e": "float32", "g": "float64"}.get(dtype.char, dtype.name)
    return Box(shape, name, _bounds(space.low), _bounds(space.high))


def _discrete(space: Any) -> Discrete:
    # The older API's Discrete counts from 0 and has no `start`.
    return Discrete(int(space.n), int(getattr(space, "start", 0)))


def _bounds(values: Any) -> tuple[float, ...]:
    """One bound if all are equal, else one for each element, in C order."""
    flat = np.asarray(values).ravel()
    if (flat == flat[0]).all():
        return (float(flat[0]),)
    return tuple(map(float, flat))
