"""Applies a snapshot to objects of the same kinds as those it was taken of.

Objects with attributes, generators and simulators stay the same objects, and get other attributes. Containers and
arrays are new ones, because an environment may share its own with its class. What is left alone stays as it is.

Nothing is changed before the whole snapshot has been read.
"""

import enum
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from penstock.envs.snapshots.format import Graph, unpacked
from penstock.envs.snapshots.kinds import attributes_of, has_own, name_of_class, slots_of
from penstock.envs.snapshots.simulators import apply_ale, apply_mujoco, is_ale, is_mujoco
from penstock.errors import PenstockError, SnapshotError

__all__ = ["apply"]

_NOTHING = object()
"""In place of an object that the snapshot has and the target lacks."""
_BITS = {name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")}


def apply(content: bytes, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Bring all parts into the state that `capture` has copied.

    Args:
        content: of a snapshot.
        parts: objects of the same kinds under the same names.

    Returns:
        The parts: objects with attributes are those that were given, everything else is new.

    Raises:
        SnapshotError: the snapshot is damaged, or of other objects.
    """
    applied = _Applied(unpacked(content))
    try:
        found: dict[str, Any] = applied.value(applied.graph.root, dict(parts))
        for change in applied.changes:
            change()
    except PenstockError:
        raise
    except Exception as error:
        raise SnapshotError(f"the snapshot does not fit: {type(error).__name__}: {error}") from error
    return found


class _Applied:
    """Reads the graph of a snapshot beside the objects to which it is applied.

    Attributes:
        changes: what has to be done once the graph is read.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changes: list[Callable[[], None]] = []
        self._made: dict[int, Any] = {}
        """Index of a node -> its object."""
        self._taken: set[int] = set()
        """Ids of the target's objects that stand for a node."""
        self._modules: set[str] = set()
        """Modules of the target's classes: an object that the target lacks may be of a class of these."""

    def value(self, value: Any, target: Any) -> Any:
        """The object that a value names. ``target`` stands in its place now."""
        if not isinstance(value, list):
            return value
        if not value:
            if target is _NOTHING:
                raise SnapshotError("the environment lacks an object that its snapshots leave alone")
            return target
        (index,) = value
        if index not in self._made:
            kind, *said = self.graph.nodes[index]
            self._made[index] = getattr(self, f"_{kind}")(index, target, *said)
        return self._made[index]

    def _list(self, index: int, target: Any, values: list[Any]) -> list[Any]:
        made: list[Any] = []
        self._made[index] = made
        made.extend(self._values(values, target, list))
        return made

    def _tuple(self, _: int, target: Any, values: list[Any]) -> Any:
        return tuple(self._values(values, target, tuple))

    def _set(self, _: int, __: Any, values: list[Any]) -> Any:
        return {self.value(value, _NOTHING) for value in values}

    def _frozenset(self, _: int, __: Any, values: list[Any]) -> Any:
        return frozenset(self.value(value, _NOTHING) for value in values)

    def _named(self, _: int, target: Any, name: str, values: list[Any]) -> Any:
        return self._class(name, target)._make(self._values(values, target, tuple))

    def _deque(self, index: int, target: Any, maxlen: int | None, values: list[Any]) -> deque[Any]:
        made: deque[Any] = deque(maxlen=maxlen)
        self._made[index] = made
        made.extend(self._values(values, target, deque))
        return made

    def _dict(self, index: int, target: Any, kind: str, pairs: list[Any]) -> dict[Any, Any]:
        made: dict[Any, Any]
        if kind == "default":
            if not isinstance(target, defaultdict):
                raise SnapshotError("the environment lacks a defaultdict that its snapshot has")
            made = defaultdict(target.default_factory)
        else:
            made = {"dict": dict, "ordered": OrderedDict, "counter": Counter}[kind]()
        self._made[index] = made
        for key, value in pairs:
            found = self.value(key, _NOTHING)
            made[found] = self.value(value, target.get(found, _NOTHING) if isinstance(target, dict) else _NOTHING)
        return made

    def _array(self, _: int, target: Any, *form: Any) -> Any:
        dtype, shape, blob, order, writeable = form
        values = np.frombuffer(self.graph.blobs[blob], dtype).reshape(shape, order=order)
        is_alike = _is_foreign(target) and target.shape == values.shape and target.dtype == values.dtype
        if is_alike and self._own_object(target, np.ndarray) is target:
            # Its memory belongs to the simulator, which reads it there.
            self.changes.append(lambda: np.copyto(target, values))
            return target
        made = values.copy("K")
        made.flags.writeable = writeable
        return made

    def _view(self, _: int, target: Any, shown: list[int], *form: Any) -> Any:
        dtype, shape, strides, offset = form
        owner = target
        while isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        return np.ndarray(tuple(shape), dtype, self.value(shown, owner), offset, tuple(strides))

    def _number(self, _: int, __: Any, dtype: str, blob: int) -> Any:
        return np.frombuffer(self.graph.blobs[blob], dtype)[0]

    def _bytes(self, _: int, __: Any, blob: int) -> bytes:
        return self.graph.blobs[blob]

    def _bytearray(self, _: int, __: Any, blob: int) -> bytearray:
        return bytearray(self.graph.blobs[blob])

    def _complex(self, _: int, __: Any, real: float, imaginary: float) -> complex:
        return complex(real, imaginary)

    def _enum(self, _: int, target: Any, of: str, name: str) -> Any:
        found = self._class(of, target)
        if not issubclass(found, enum.Enum):
            raise SnapshotError(f"{of} is no enum")
        return found[name]

    def _flag(self, _: int, target: Any, of: str, value: int) -> Any:
        found = self._class(of, target)
        if not issubclass(found, enum.Flag):
            raise SnapshotError(f"{of} is no enum of flags")
        return found(value)

    def _generator(self, _: int, target: Any, bits: list[int]) -> Any:
        if type(target) is np.random.Generator:
            made = self.value(bits, target.bit_generator)
            return target if made is target.bit_generator else np.random.Generator(made)
        return np.random.Generator(self.value(bits, _NOTHING))

    def _bits(self, _: int, target: Any, state: list[int]) -> Any:
        found = self.value(state, _NOTHING)
        kind = _BITS[found["bit_generator"]]
        made = self._own_object(target, kind) or kind(0)
        self.changes.append(lambda: setattr(made, "state", found))
        return made

    def _randomstate(self, _: int, target: Any, state: list[int]) -> Any:
        made = self._own_object(target, np.random.RandomState) or np.random.RandomState(0)
        found = self.value(state, _NOTHING)
        self.changes.append(lambda: made.set_state(found))
        return made

    def _random(self, _: int, target: Any, state: list[int]) -> Any:
        made = self._own_object(target, random.Random) or random.Random(0)
        found = self.value(state, _NOTHING)
        self.changes.append(lambda: made.setstate(found))
        return made

    def _space(self, index: int, target: Any, numbers: Any) -> Any:
        if target is _NOTHING:
            raise SnapshotError("the environment lacks a space that its snapshot has")
        self._made[index] = target
        if numbers is not None:
            found = self.value(numbers, getattr(target, "_np_random", None))
            self.changes.append(lambda: setattr(target, "_np_random", found))
        return target

    def _own(self, _: int, target: Any, blob: int) -> Any:
        if not has_own(target):
            raise SnapshotError("the environment lacks an object with set_snapshot")
        self.changes.append(lambda: target.set_snapshot(self.graph.blobs[blob]))
        return target

    def _mujoco(self, _: int, target: Any, arrays: list[int]) -> Any:
        if not is_mujoco(target):
            raise SnapshotError("the environment lacks a MuJoCo simulation that its snapshot has")
        found = self.value(arrays, _NOTHING)
        self.changes.append(lambda: apply_mujoco(target, found))
        return target

    def _ale(self, _: int, target: Any, blob: int) -> Any:
        if not is_ale(target):
            raise SnapshotError("the environment lacks an Atari emulator that its snapshot has")
        self.changes.append(lambda: apply_ale(target, self.graph.blobs[blob]))
        return target

    def _object(self, index: int, target: Any, name: str, attributes: dict[str, Any]) -> Any:
        kind = self._class(name, target)
        made = self._own_object(target, kind)
        if made is None:
            made, target = object.__new__(kind), _NOTHING
        self._made[index] = made
        self._modules.update(base.__module__ for base in kind.__mro__)
        # Not the attributes of its class: these are shared.
        beside = {} if target is _NOTHING else dict(attributes_of(target))
        found = {key: self.value(value, beside.get(key, _NOTHING)) for key, value in attributes.items()}
        self.changes.append(lambda: _set_attributes(made, found))
        return made

    def _values(self, values: list[Any], target: Any, kind: Any) -> Iterator[Any]:
        """The elements of a container. Those of the target stand beside them, if it has as many."""
        beside = list(target) if type(target) is kind and len(target) == len(values) else [_NOTHING] * len(values)
        for value, other in zip(values, beside, strict=True):
            yield self.value(value, other)

    def _own_object(self, target: Any, kind: type) -> Any:
        """The target, if it is of that class and stands for no other node; else ``None``."""
        if type(target) is not kind or id(target) in self._taken:
            return None
        self._taken.add(id(target))
        return target

    def _class(self, name: str, target: Any) -> Any:
        """The class of that name: the target's, or one of a module from which the target has classes."""
        if target is not _NOTHING and name_of_class(type(target)) == name:
            return type(target)
        module, _, qualified = name.partition(":")
        found: Any = sys.modules.get(module) if module in self._modules else None
        for part in qualified.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type) or name_of_class(found) != name:
            raise SnapshotError(f"the environment has no object of {name}, which its snapshot has")
        return found


def _is_foreign(target: Any) -> bool:
    """True for an array whose memory is that of an object of C code."""
    if not isinstance(target, np.ndarray) or not target.flags.writeable:
        return False
    return target.base is not None and not isinstance(target.base, np.ndarray)


def _set_attributes(made: Any, found: dict[str, Any]) -> None:
    slots = [name for name in slots_of(type(made)) if hasattr(made, name) or name in found]
    for name in slots:
        # As an attribute of a frozen class is set.
        if name in found:
            object.__setattr__(made, name, found[name])
        else:
            object.__delattr__(made, name)
    if hasattr(made, "__dict__"):
        made.__dict__.clear()
        made.__dict__.update({name: value for name, value in found.items() if name not in slots})
