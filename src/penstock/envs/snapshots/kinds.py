"""Which objects a snapshot copies, which ones it leaves alone, and which ones it refuses."""

import copyreg
import enum
import functools
import logging
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["attributes_of", "has_own", "is_alone", "is_python_object", "is_space", "name_of_class", "slots_of"]

_ALONE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.GenericAlias,
    functools.partial,
    functools._lru_cache_wrapper,  # noqa: SLF001 - it has no public name
    property,
    range,
    slice,
    np.dtype,
    np.ufunc,
    np.memmap,
    np.random.SeedSequence,
    logging.Logger,
    re.Pattern,
    pathlib.PurePath,
)
"""Types whose objects do not change, or belong to all objects of a class."""
_REGISTRIES = ("gymnasium.envs.registration", "gym.envs.registration")
"""Modules of descriptions of environments."""


def is_alone(found: object) -> bool:
    """True for what all objects of a kind have in common: classes, functions, modules, the description of an id."""
    return isinstance(found, _ALONE) or type(found).__module__.startswith(_REGISTRIES) or _is_model(found)


def is_space(found: object) -> bool:
    """True for a space of Gymnasium or of Gym. Only its random numbers change."""
    return any(base.__name__ == "Space" and ".spaces." in base.__module__ for base in type(found).__mro__)


def has_own(found: object) -> bool:
    """True for an object that makes its snapshots itself, by ``get_snapshot`` and ``set_snapshot``."""
    return all(callable(getattr(type(found), name, None)) for name in ("get_snapshot", "set_snapshot"))


def is_python_object(found: object) -> bool:
    """True if all that the object holds is in its attributes. False for objects of C code.

    An object of C code is larger than its attributes need.
    """
    kind = type(found)
    if kind.__itemsize__ or isinstance(found, enum.Enum):
        return False
    words = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0) + len(slots_of(kind))
    return kind.__basicsize__ <= object.__basicsize__ + words * np.dtype(np.intp).itemsize


def slots_of(kind: type) -> list[str]:
    """The names of a class's slots, as attributes."""
    names: list[str] = copyreg._slotnames(kind)  # type: ignore[attr-defined]  # noqa: SLF001 - as `copy` finds them
    return names


def attributes_of(found: object) -> Iterator[tuple[str, Any]]:
    """The object's own attributes, without those of its class."""
    yield from getattr(found, "__dict__", {}).items()
    for name in slots_of(type(found)):
        if hasattr(found, name):
            yield name, getattr(found, name)


def name_of_class(kind: type) -> str:
    """``module:qualified name``."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _is_model(found: object) -> bool:
    """True for a model of MuJoCo: the environment's file in memory. If a reset changes it, the seed repeats that."""
    return type(found).__name__ == "MjModel" and type(found).__module__.startswith("mujoco")
