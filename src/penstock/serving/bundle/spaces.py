"""Spaces as JSON and back, for the manifest of a bundle."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.types import ActionSpace, Box, Composite, Discrete, Leaf, MultiDiscrete, Space, Spaces

__all__ = ["from_json", "to_json"]


def to_json(spaces: Spaces) -> dict[str, Any]:
    """Spaces as JSON values. ``null`` stands for no bound."""
    fields, unread = (
        [{"name": name, **_leaf(space)} for name, space in parts] for parts in (spaces.obs, spaces.unread)
    )
    return {
        "observation": fields,
        "action_mask": spaces.mask,
        "unread": unread,
        "action": _action(spaces.action),
    }


def from_json(found: Mapping[str, Any]) -> Spaces:
    """The spaces that `to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it did not write this.
    """
    # Older versions have written no unread fields.
    fields, unread = (
        tuple((str(part["name"]), _space(part)) for part in parts)
        for parts in (found["observation"], found.get("unread", ()))
    )
    action = found["action"]
    if action["kind"] != "composite":
        return Spaces(fields, _read_leaf(action), found["action_mask"], unread)
    leaves = tuple((tuple(part["path"]), _read_leaf(part)) for part in action["leaves"])
    return Spaces(fields, Composite(leaves), found["action_mask"], unread)


def _action(space: ActionSpace) -> dict[str, Any]:
    if not isinstance(space, Composite):
        return _leaf(space)
    return {"kind": "composite", "leaves": [{"path": list(path), **_leaf(leaf)} for path, leaf in space.leaves]}


def _leaf(space: Leaf) -> dict[str, Any]:
    match space:
        case Discrete():
            return {"kind": "discrete", "n": space.n, "start": space.start}
        case MultiDiscrete():
            sizes = {"sizes": list(space.sizes), "starts": list(space.starts)}
            return {"kind": "multi_discrete", **sizes, "shape": list(space.shape), "dtype": space.dtype}
        case Box():
            bounds = {"low": _bounds(space.low), "high": _bounds(space.high)}
            return {"kind": "box", "shape": list(space.shape), "dtype": space.dtype, **bounds}


def _bounds(bounds: Sequence[float]) -> list[float | None]:
    return [bound if math.isfinite(bound) else None for bound in bounds]


def _space(found: Mapping[str, Any]) -> Space:
    space = _read_leaf(found)
    if isinstance(space, MultiDiscrete):
        raise ValueError("an observed MultiDiscrete is a box")  # noqa: TRY004 - the value is wrong
    return space


def _read_leaf(found: Mapping[str, Any]) -> Leaf:
    match found["kind"]:
        case "discrete":
            return Discrete(int(found["n"]), int(found["start"]))
        case "multi_discrete":
            sizes, starts, shape = (tuple(map(int, found[name])) for name in ("sizes", "starts", "shape"))
            return MultiDiscrete(sizes, starts, shape, str(found["dtype"]))
        case "box":
            low, high = (
                tuple(free if bound is None else float(bound) for bound in found[name])
                for name, free in (("low", -math.inf), ("high", math.inf))
            )
            return Box(tuple(map(int, found["shape"])), str(found["dtype"]), low, high)
    raise ValueError(f"unknown kind of space {found['kind']!r}")
