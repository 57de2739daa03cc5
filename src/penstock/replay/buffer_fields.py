"""What a user stores in a row of a buffer, by names, shapes and dtypes. Holds no rows."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from penstock.config.values import count_of
from penstock.errors import ConfigError
from penstock.replay.buffer_layout import is_observation
from penstock.types import ArraySpec

__all__ = ["Fields", "field_specs"]

Fields: TypeAlias = Mapping[str, tuple[Sequence[int], Any]]
"""Name -> shape and dtype of one row."""

_NAME = re.compile(r"[A-Za-z_][\w.]*")
_OWN_NAMES = frozenset(
    {
        *("reward", "terminated", "truncated", "valid", "first", "discount", "index", "stamp", "importance"),
        *("weight", "rollout", "continues", "steps_before"),
    }
)
_OWN_BEGINNINGS = ("next_", "next.", "final", "carry.", "episode_", "lane_")


def field_specs(fields: Fields) -> tuple[ArraySpec, ...]:
    """The arrays of these fields.

    Raises:
        ConfigError: a name, a shape or a dtype cannot be used, or there is no observation.
    """
    if not isinstance(fields, Mapping) or not any(is_observation(str(name)) for name in fields):
        wanted = "a mapping of names to (shape, dtype), and one of them is obs or obs.<key>"
        raise ConfigError(f"fields are {wanted}, not {_shown(fields)}")
    return tuple(_spec(name, given) for name, given in fields.items())


def _spec(name: str, given: Any) -> ArraySpec:  # noqa: ANN401 - whatever the user gave
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{_shown(name)} is no name of a field; give letters, digits, _ and dots")
    if name in _OWN_NAMES or name.startswith(_OWN_BEGINNINGS):
        raise ConfigError(f"{name} is a name of the buffer's own; give the field another one")
    try:
        shape, dtype = given
        sizes, kind = tuple(count_of(size, f"the shape of {name}") for size in shape), np.dtype(dtype)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {_shown(given)}; give its shape and dtype, as ((4,), 'float32')") from None
    if kind.kind not in "biuf":
        raise ConfigError(f"{name} has dtype {kind}; give a kind of number, or bool")
    return ArraySpec(name, sizes, kind.name)


def _shown(value: object) -> str:
    return repr(value)[:120]
