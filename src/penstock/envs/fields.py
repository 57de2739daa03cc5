"""Observation fields: the leaves of an observation space by name, without those that a run leaves out.

A field of a Dict has the name of its key, a field of a Tuple its place (``0``, ``1``), a nested field all of them
(``dials.a``). Reads spaces of Gymnasium and of the older API by the names of their classes, and imports neither.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from penstock.errors import ConfigError, SpaceError, nearest

__all__ = ["OBSERVATIONS", "FieldPath", "field_paths", "kind_of", "nested", "one_line", "used_fields"]

FieldPath: TypeAlias = tuple[Any, ...]
"""The keys of Dicts and places in Tuples that lead to a field; empty for a plain observation."""

OBSERVATIONS = (
    "an observation may be a Box of at least one number, Discrete, MultiDiscrete or MultiBinary, "
    "or a Dict or Tuple of those"
)
_LEAVES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
_BRANCHES = ("Dict", "Tuple")


def one_line(value: object, limit: int = 120) -> str:
    """The ``str`` of an object, on one line of bounded length. A client's object may be too deep for one."""
    try:
        text = " ".join(str(value).split())
    except RecursionError:
        text = f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def kind_of(space: Any) -> str:
    """Name of the supported class that a space derives from, or of its own class."""
    names = [base.__name__ for base in type(space).__mro__]
    return next((name for name in names if name in (*_LEAVES, *_BRANCHES)), names[0])


def field_paths(observation_space: Any) -> dict[str, FieldPath]:
    """Name of each field in rows (``obs``, ``obs.<name>``) -> its path in an observation."""
    return {".".join(("obs", *map(str, path))): path for path, _ in _leaves(observation_space)}


def nested(fields: Iterable[tuple[FieldPath, Any]]) -> Any:
    """The observation whose fields have these paths and values. A Tuple becomes a dict by places."""
    found: dict[Any, Any] = {}
    for path, value in fields:
        *above, key = ("obs", *path)
        inner = found
        for part in above:
            inner = inner.setdefault(part, {})
        inner[key] = value
    return found["obs"]


def used_fields(observation_space: Any, ignore_obs: Sequence[str] = ()) -> dict[str, Any]:
    """Name in rows -> space, for each field that a run uses, sorted by name.

    Args:
        observation_space: of one environment.
        ignore_obs: names of fields to leave out, as a user types them: without ``obs.``. The name of a Dict or Tuple
            leaves out all its fields.

    Raises:
        ConfigError: ``ignore_obs`` names an unknown field, or leaves none.
        SpaceError: a used field is no array of numbers, or two fields have the same name.
    """
    leaves = list(_leaves(observation_space))
    fields = {".".join(map(str, path)): space for path, space in leaves}
    if not leaves or len(fields) < len(leaves):
        names = Counter(".".join(map(str, path)) for path, _ in leaves)
        what = f"has two fields of one name, {names.most_common(1)[0][0]}" if leaves else "is empty"
        raise SpaceError(f"observation space {one_line(observation_space)} {what}: {OBSERVATIONS}")
    left = _without(fields, ignore_obs)
    unusable = [name for name, space in left.items() if not _is_usable(space)]
    if len(unusable) == len(left):
        raise SpaceError(f"observation space {one_line(observation_space)} is not supported: {OBSERVATIONS}")
    if unusable:
        raise SpaceError(_refusal({name: left[name] for name in unusable}, ignore_obs))
    # A Dict may have a field whose name is empty.
    is_plain = leaves[0][0] == ()
    return {"obs" if is_plain else f"obs.{name}": left[name] for name in sorted(left)}


def _leaves(space: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    kind = kind_of(space)
    if kind not in _BRANCHES:
        yield path, space
        return
    for key, inner in space.spaces.items() if kind == "Dict" else enumerate(space.spaces):
        yield from _leaves(inner, (*path, key))


def _without(fields: Mapping[str, Any], ignore_obs: Sequence[str]) -> dict[str, Any]:
    """The fields without the ignored ones.

    Raises:
        ConfigError: ``ignore_obs`` names an unknown field, or leaves none.
    """
    given = f"--ignore_obs {shlex.quote(','.join(ignore_obs))}"
    if ignore_obs and "" in fields:
        raise ConfigError(
            f"{given} names fields of a Dict or Tuple, but the observation is {one_line(fields[''])}: leave it out"
        )
    for name in ignore_obs:
        if not any(_is_within(field, name) for field in fields):
            known = nearest(name, fields) or f"; its fields are {one_line(', '.join(fields))}"
            raise ConfigError(f"{given}: the observation has no field {name}{known}")
    left = {field: space for field, space in fields.items() if not any(_is_within(field, name) for name in ignore_obs)}
    if not left:
        usable = [field for field, space in fields.items() if _is_usable(space)] or list(fields)
        raise ConfigError(f"{given} leaves nothing of the observation; keep at least one of {', '.join(usable)}")
    return left


def _is_within(field: str, name: str) -> bool:
    return field == name or field.startswith(f"{name}.")


def _is_usable(space: Any) -> bool:
    """True for an array of numbers of a fixed shape, with at least one number."""
    if kind_of(space) != "Box":
        return kind_of(space) in _LEAVES
    return np.dtype(space.dtype).kind in "biuf" and 0 not in space.shape


def _described(space: Any) -> str:
    """A space in a few words. Some show an object by its address, which says nothing."""
    shown = one_line(space, 60)
    return f"a {type(space).__name__}" if " at 0x" in repr(space) else shown


def _refusal(unusable: Mapping[str, Any], ignore_obs: Sequence[str]) -> str:
    said = " and ".join(f"{name}, {_described(space)}," for name, space in unusable.items())
    flag = f"--ignore_obs {shlex.quote(','.join((*ignore_obs, *unusable)))}"
    if len(unusable) == 1:
        return f"observation field {said} is no array of numbers with a fixed shape; to leave it out: {flag}"
    return f"observation fields {said} are no arrays of numbers with a fixed shape; to leave them out: {flag}"
