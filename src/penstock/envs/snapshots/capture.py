"""Copies the state of objects: their attributes, as far as they are plain data, and the states of known simulators.

Follows attributes and the elements of containers, each object once. Kinds of nodes, by what they hold:

- ``list``, ``tuple``, ``set``, ``frozenset``: values. ``named``: the class of a named tuple, values.
- ``deque``: its longest length, values. ``dict``: its class, pairs of values.
- ``array``: dtype, shape, blob, order in memory, whether it can be written.
- ``view``: the array it shows, dtype, shape, strides, offset.
- ``number``: dtype, blob: a NumPy number. ``bytes``, ``bytearray``: blob. ``complex``: real, imaginary.
- ``enum``: class, name. ``flag``: class, value; a union of flags is no member, so it has no name of its own.
- ``generator``, ``bits``: the state of a NumPy generator. ``randomstate``, ``random``: theirs.
- ``object``: class, attributes. ``space``: its random numbers.
- ``own``, ``ale``: blob. ``mujoco``: a value, a dict of arrays.
"""

import enum
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from penstock.envs.snapshots.format import Graph, packed
from penstock.envs.snapshots.kinds import attributes_of, has_own, is_alone, is_python_object, is_space, name_of_class
from penstock.envs.snapshots.simulators import is_ale, is_mujoco, of_ale, of_mujoco
from penstock.errors import BadDataError, PenstockError, SnapshotError
from penstock.types import Array

__all__ = ["capture"]

_SCALARS = (bool, int, float, str)
_SEQUENCES: dict[Any, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_MAPPINGS: dict[Any, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter", defaultdict: "default"}


def capture(parts: Mapping[str, Any]) -> bytes:
    """The state of all parts, as bytes that `apply` applies to objects of the same kinds.

    Raises:
        SnapshotError: an object holds something that cannot be copied. The text names it.
    """
    captured = _Capture()
    try:
        root = captured.value(dict(parts), "")
    except PenstockError:
        raise
    except Exception as error:
        raise SnapshotError(f"its state cannot be read: {type(error).__name__}: {error}") from error
    return packed(Graph(root, captured.nodes, captured.blobs))


class _Capture:
    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self.blobs: list[bytes] = []
        self._seen: dict[int, tuple[int, Any]] = {}
        """Id of an object -> its node, and the object itself, so that no other object gets its id."""

    def value(self, found: Any, path: str) -> Any:
        """What stands for an object where another one refers to it."""
        if found is None or type(found) in _SCALARS:
            return found
        if is_alone(found):
            return []
        if id(found) in self._seen:
            return [self._seen[id(found)][0]]
        index = len(self.nodes)
        self.nodes.append([])
        self._seen[id(found)] = index, found
        self.nodes[index] = self._node(found, path)
        return [index]

    def _node(self, found: Any, path: str) -> list[Any]:
        kind = type(found)
        if kind in _SEQUENCES:
            return [_SEQUENCES[kind], self._values(found, path)]
        if kind in _MAPPINGS:
            pairs = [
                [self.value(key, path), self.value(value, f"{path}[{key!r}]" if path else str(key))]
                for key, value in found.items()
            ]
            return ["dict", _MAPPINGS[kind], pairs]
        for is_kind, node in _NODES:
            if is_kind(found):
                return node(self, found, path)
        raise SnapshotError(f"{path} is a {kind.__module__}.{kind.__qualname__}, whose state cannot be copied")

    def _values(self, found: Any, path: str) -> list[Any]:
        return [self.value(value, f"{path}[{place}]") for place, value in enumerate(found)]

    def _blob(self, content: bytes) -> int:
        self.blobs.append(content)
        return len(self.blobs) - 1

    def _named(self, found: Any, path: str) -> list[Any]:
        return ["named", name_of_class(type(found)), self._values(found, path)]

    def _deque(self, found: Any, path: str) -> list[Any]:
        return ["deque", found.maxlen, self._values(found, path)]

    def _array(self, found: Array, path: str) -> list[Any]:
        if found.dtype.hasobject or found.dtype.names is not None:
            raise SnapshotError(f"{path} is an array of {found.dtype}, which cannot be copied")
        owner = found.base
        while isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        if type(owner) is np.ndarray and owner.flags.writeable and owner.flags.c_contiguous:
            # The array shows a part of another one, which other objects may change.
            offset = found.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
            shown = self.value(owner, path)
            return ["view", shown, found.dtype.str, list(found.shape), list(found.strides), offset]
        # A sum over an array depends on the order of its elements in memory.
        order: Literal["F", "C"] = "F" if found.flags.f_contiguous and not found.flags.c_contiguous else "C"
        blob = self._blob(found.tobytes(order))
        return ["array", found.dtype.str, list(found.shape), blob, order, bool(found.flags.writeable)]

    def _number(self, found: np.generic, path: str) -> list[Any]:
        if found.dtype.hasobject or found.dtype.names is not None:
            raise SnapshotError(f"{path} is a number of {found.dtype}, which cannot be copied")
        return ["number", found.dtype.str, self._blob(found.tobytes())]

    def _bytes(self, found: bytes | bytearray, _: str) -> list[Any]:
        return [type(found).__name__, self._blob(bytes(found))]

    def _complex(self, found: complex, _: str) -> list[Any]:
        return ["complex", found.real, found.imag]

    def _enum(self, found: enum.Enum, _: str) -> list[Any]:
        return ["enum", name_of_class(type(found)), found.name]

    def _flag(self, found: enum.Flag, _: str) -> list[Any]:
        return ["flag", name_of_class(type(found)), found.value]

    def _generator(self, found: np.random.Generator, path: str) -> list[Any]:
        # Its bits may be an attribute of another object as well.
        return ["generator", self.value(found.bit_generator, path)]

    def _bits(self, found: Any, path: str) -> list[Any]:
        return ["bits", self.value(dict(found.state), path)]

    def _random_state(self, found: np.random.RandomState, path: str) -> list[Any]:
        return ["randomstate", self.value(found.get_state(legacy=False), path)]

    def _random(self, found: random.Random, path: str) -> list[Any]:
        return ["random", self.value(found.getstate(), path)]

    def _space(self, found: Any, path: str) -> list[Any]:
        return ["space", self.value(getattr(found, "_np_random", None), f"{path}.np_random")]

    def _own(self, found: Any, _: str) -> list[Any]:
        name = name_of_class(type(found))
        try:
            content = found.get_snapshot()
        except Exception as error:
            raise BadDataError(f"get_snapshot of {name} failed: {type(error).__name__}: {error}") from error
        if not isinstance(content, bytes):
            raise BadDataError(f"get_snapshot of {name} returned {type(content).__name__}; return bytes")
        return ["own", self._blob(content)]

    def _mujoco(self, found: Any, path: str) -> list[Any]:
        return ["mujoco", self.value(dict(of_mujoco(found)), path)]

    def _ale(self, found: Any, _: str) -> list[Any]:
        return ["ale", self._blob(of_ale(found))]

    def _object(self, found: Any, path: str) -> list[Any]:
        attributes = {name: self.value(value, f"{path}.{name}") for name, value in attributes_of(found)}
        return ["object", name_of_class(type(found)), attributes]


_NODES: tuple[tuple[Callable[[Any], bool], Callable[[_Capture, Any, str], list[Any]]], ...] = (
    (has_own, _Capture._own),  # noqa: SLF001 - of this module
    (lambda found: isinstance(found, enum.Flag), _Capture._flag),  # noqa: SLF001
    (lambda found: isinstance(found, enum.Enum), _Capture._enum),  # noqa: SLF001
    (lambda found: type(found) is np.ndarray, _Capture._array),  # noqa: SLF001
    (lambda found: isinstance(found, np.generic), _Capture._number),  # noqa: SLF001
    (lambda found: type(found) in (bytes, bytearray), _Capture._bytes),  # noqa: SLF001
    (lambda found: type(found) is complex, _Capture._complex),  # noqa: SLF001
    (lambda found: type(found) is deque, _Capture._deque),  # noqa: SLF001
    (lambda found: isinstance(found, tuple) and hasattr(found, "_fields"), _Capture._named),  # noqa: SLF001
    (lambda found: type(found) is np.random.Generator, _Capture._generator),  # noqa: SLF001
    (lambda found: isinstance(found, np.random.BitGenerator), _Capture._bits),  # noqa: SLF001
    (lambda found: type(found) is np.random.RandomState, _Capture._random_state),  # noqa: SLF001
    (lambda found: type(found) is random.Random, _Capture._random),  # noqa: SLF001
    (is_space, _Capture._space),  # noqa: SLF001
    (is_mujoco, _Capture._mujoco),  # noqa: SLF001
    (is_ale, _Capture._ale),  # noqa: SLF001
    (is_python_object, _Capture._object),  # noqa: SLF001
)
