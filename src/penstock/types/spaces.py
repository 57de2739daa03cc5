"""Spaces of observations and actions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from penstock.types.arrays import ArraySpec

__all__ = [
    "ActionSpace",
    "Box",
    "Composite",
    "Discrete",
    "Leaf",
    "LeafPath",
    "MultiDiscrete",
    "Space",
    "Spaces",
    "Stack",
]


@dataclass(frozen=True)
class Stack:
    """The first axis of an observation holds its latest frames, the newest last. Each step appends one frame."""

    frames: int
    """At least 2."""
    padding: Literal["first", "zero"]
    """The frames before an episode's first one: copies of the first, or zeros."""


@dataclass(frozen=True)
class Box:
    """A box of numbers. ``low`` and ``high`` hold one bound for all elements, or one each in C order."""

    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    stack: Stack | None = field(default=None, repr=False)
    """``None``: the observation is not known to be a stack of frames. A checkpoint does not record this, because
    learning from whole observations does not depend on it."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bounded(self) -> bool:
        """True if every element has finite bounds on both sides."""
        return all(map(math.isfinite, self.low)) and all(map(math.isfinite, self.high))

    @property
    def partly_bounded(self) -> bool:
        """True if some of the bounds are finite, but not all."""
        return not self.bounded and any(map(math.isfinite, (*self.low, *self.high)))

    @property
    def choices(self) -> tuple[int, ...]:
        """Empty: numbers are not chosen from a list."""
        return ()


@dataclass(frozen=True)
class Discrete:
    """The integers ``start .. start + n - 1``."""

    n: int
    start: int = 0

    @property
    def size(self) -> int:
        """Number of elements, which is one."""
        return 1

    @property
    def choices(self) -> tuple[int, ...]:
        """The number of choices of the one element."""
        return (self.n,)


@dataclass(frozen=True)
class MultiDiscrete:
    """Several integers, each chosen on its own: a MultiDiscrete or a MultiBinary. Tuples are in C order."""

    sizes: tuple[int, ...]
    """The number of choices of each element."""
    starts: tuple[int, ...]
    """The first choice of each element."""
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return len(self.sizes)

    @property
    def choices(self) -> tuple[int, ...]:
        """The number of choices of each element."""
        return self.sizes


Leaf: TypeAlias = Box | Discrete | MultiDiscrete
"""A space that holds one array."""


LeafPath: TypeAlias = tuple[str | int, ...]
"""Keys of Dicts (``str``) and places in Tuples (``int``) that lead to a leaf."""


@dataclass(frozen=True)
class Composite:
    """A Dict or Tuple of actions. Nested ones are flattened to leaves, in the order of the space."""

    leaves: tuple[tuple[LeafPath, Leaf], ...]

    @property
    def size(self) -> int:
        """Number of elements of all leaves."""
        return sum(leaf.size for _, leaf in self.leaves)

    @property
    def choices(self) -> tuple[int, ...]:
        """The number of choices of each element that is chosen, leaf after leaf."""
        return tuple(choice for _, leaf in self.leaves for choice in leaf.choices)

    def columns(self) -> Iterator[tuple[Leaf, slice]]:
        """Each leaf with the place of its elements, if the elements of all leaves stand one after the other."""
        first = 0
        for _, leaf in self.leaves:
            yield leaf, slice(first, first + leaf.size)
            first += leaf.size


Space: TypeAlias = Box | Discrete
"""The space of an observation field. An observed MultiDiscrete or MultiBinary is a Box of integers."""


ActionSpace: TypeAlias = Leaf | Composite


@dataclass(frozen=True)
class Spaces:
    """The spaces of one lane.

    ``obs`` holds field names and their spaces, sorted by name:

    - ``obs`` for a plain observation;
    - ``obs.<name>`` for each part of a Dict or Tuple: a key, a place (``0``), or several with dots (``a.0``);
    - ``action_mask`` or ``obs.action_mask`` for the action mask, if ``mask`` names it: uint8 ``[choices]``, 1 where a
      choice is possible. The choices of all elements of the action stand one after the other.

    Every row stores its observations under these names.
    """

    obs: tuple[tuple[str, Space], ...]
    action: ActionSpace
    mask: str | None = field(default=None, repr=False)
    """The field that is the action mask. A checkpoint does not record this, because ``obs`` tells it."""
    unread: tuple[tuple[str, Space], ...] = field(default=(), repr=False)
    """Of a policy in production: fields that only its critic has seen. It takes none of them, and clients that still
    send them are answered."""

    @property
    def seen(self) -> tuple[tuple[str, Space], ...]:
        """The fields that networks see: all but the action mask."""
        return tuple((name, space) for name, space in self.obs if name != self.mask)

    def sent(self) -> "Spaces":
        """These spaces with all fields that a client may send: those that nothing reads, too."""
        return replace(self, obs=tuple(sorted((*self.obs, *self.unread), key=lambda one: one[0])), unread=())

    def obs_specs(self) -> tuple[ArraySpec, ...]:
        """One spec for each observation field, without leading dimensions. A Discrete is an int64 scalar."""
        return tuple(
            ArraySpec(name, space.shape, space.dtype) if isinstance(space, Box) else ArraySpec(name, (), "int64")
            for name, space in self.obs
        )

    def stacks(self) -> dict[str, Stack]:
        """The observation fields that are stacks of frames."""
        return {name: space.stack for name, space in self.obs if isinstance(space, Box) and space.stack is not None}

    def newest(self) -> "Spaces":
        """These spaces with only the newest frame of each stack."""
        return replace(self, obs=tuple((name, _newest(space)) for name, space in self.obs))

    def action_spec(self) -> ArraySpec:
        """Spec of an action as rows store it, in the policy's units.

        float32 for a Box; int64, counted from 0, for a Discrete or MultiDiscrete; for a Composite one float32 vector of
        the elements of all leaves. Integers are exact in it.
        """
        match self.action:
            case Box(shape):
                return ArraySpec("action", shape, "float32")
            case Discrete():
                return ArraySpec("action", (), "int64")
            case MultiDiscrete(shape=shape):
                return ArraySpec("action", shape, "int64")
            case Composite():
                return ArraySpec("action", (self.action.size,), "float32")


def _newest(space: Space) -> Space:
    if isinstance(space, Discrete) or space.stack is None:
        return space
    shape = space.shape[1:]
    low, high = (bounds[-math.prod(shape) :] for bounds in (space.low, space.high))
    return Box(shape, space.dtype, low, high)
