"""The glossary as types: plain data and contracts that rooms share. Computes nothing but shapes.

Shapes are written ``[T, B, ...]``: time first, then lanes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "ActionSpace",
    "Array",
    "ArraySpec",
    "Arrays",
    "BackendSpec",
    "Box",
    "Cause",
    "Composite",
    "Discrete",
    "EnvFactory",
    "EnvRecipe",
    "EnvReference",
    "EnvSource",
    "Leaf",
    "LeafPath",
    "MultiDiscrete",
    "NoiseSpec",
    "PolicyBackend",
    "Question",
    "Space",
    "Spaces",
    "Stack",
    "StepResult",
    "Wanted",
    "Wrapper",
]

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
"""Named arrays: a row's fields, a state, a published record."""

EnvFactory: TypeAlias = Callable[..., Any]
"""Makes an environment. It is called without arguments, or with ``num_envs=`` if it declares that parameter."""


@dataclass(frozen=True)
class Wrapper:
    """A wrapper around an environment: ``make(env, **arguments)``."""

    make: "str | bytes | Callable[..., Any]"
    """``module:name`` or cloudpickle bytes. In the user's own process also the callable itself."""
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class EnvRecipe:
    """An environment with its arguments and wrappers."""

    env: "str | bytes | EnvFactory"
    """A Gymnasium id, ``module:name`` or cloudpickle bytes. In the user's own process also the factory itself."""
    arguments: Mapping[str, Any]
    """Keyword arguments for the environment's constructor or factory."""
    wrap: tuple[Wrapper, ...]
    """The first one is the innermost."""


EnvReference: TypeAlias = str | bytes | EnvRecipe
"""An environment as it travels between processes: a Gymnasium id, ``module:name``, a factory as cloudpickle bytes, or a
recipe with one of these."""


@dataclass(frozen=True)
class ArraySpec:
    """Name, shape and dtype of one array. ``dtype`` is a NumPy name, so that a spec stays plain data."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes, without padding."""
        return self.size * np.dtype(self.dtype).itemsize

    def within(self, *leading: int) -> "ArraySpec":
        """The spec of the same array with more leading dimensions."""
        return ArraySpec(self.name, (*leading, *self.shape), self.dtype)


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
    - ``obs.<name>`` for each part of a Dict or Tuple: a key, a place (``0``), or several with dots (``a.0``).

    - ``action_mask`` or ``obs.action_mask`` for the action mask, if ``mask`` names it: uint8 ``[choices]``, 1 where a
      choice is possible. The choices of all elements of the action stand one after the other.

    Every row stores its observations under these names.
    """

    obs: tuple[tuple[str, Space], ...]
    action: ActionSpace
    mask: str | None = field(default=None, repr=False)
    """The field that is the action mask. A checkpoint does not record this, because ``obs`` tells it."""

    @property
    def seen(self) -> tuple[tuple[str, Space], ...]:
        """The fields that networks see: all but the action mask."""
        return tuple((name, space) for name, space in self.obs if name != self.mask)

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


@dataclass(frozen=True)
class BackendSpec:
    """How to make a policy backend, as plain data: ``load(build)(*arguments)``."""

    build: str
    """``module:attribute``."""
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class NoiseSpec:
    """The noise input of ``act``, for each lane and step. It makes acting a pure function."""

    distribution: Literal["normal", "uniform", "gumbel", "composed"]
    shape: tuple[int, ...]
    parts: tuple["NoiseSpec", ...] = ()
    """``composed`` only: vectors of other distributions, which stand one after the other."""


class StepResult(NamedTuple):
    """Result of one vector step of a source. The source owns all arrays; they are valid until its next call.

    Checking six arrays costs more than copying them. So a source that writes into the same arrays every time returns
    the same ``StepResult`` object. Its caller checks the arrays of a new object only.
    """

    obs: Arrays
    """field -> ``[B, ...]``: the policy's next input. After the end of an episode: the next episode's first observation
    (same-step sources), or the ended episode's last observation (next-step sources)."""
    reward: Array
    """``[B]`` float32."""
    terminated: Array
    """``[B]`` bool."""
    truncated: Array
    """``[B]`` bool."""
    reset: Array
    """``[B]`` bool: this step was the source's own reset. Its action was ignored, and the row is not valid."""
    final_obs: Arrays
    """field -> ``[B, ...]``: for same-step sources, the last observations of episodes that ended in this step."""


class Cause(IntEnum):
    """Why a process ended, if not by itself or by a signal from elsewhere."""

    NONE = 0
    SILENT = 1
    """A node gave no sign of life, or its announced work took too long."""
    SLOW_STEP = 2
    """A step or reset of an environment took longer than ``env_timeout`` allows."""
    MOVED = 3
    """Its node goes on on a machine that has joined."""
    LOST = 4
    """Its machine was lost."""

    @property
    def hung(self) -> bool:
        """Whether the supervisor ended it because it hung."""
        return self in {Cause.SILENT, Cause.SLOW_STEP}


class Wanted(IntEnum):
    """The outputs that a question to a policy asks for."""

    ROW = 0
    """All outputs of ``act`` for row ``row``, its ``policy_version``, and the actions in the environment's units."""
    VALUE = 1
    """``value`` of row ``row``."""
    FINAL_VALUE = 2
    """``final_value`` of the first ``finals`` last observations."""


class Question(NamedTuple):
    """A question of one asker about one slot of the stream that it writes. It travels as plain numbers."""

    asker: int
    """Index among the askers of the answering node."""
    wanted: int
    """One of `Wanted`."""
    refresh: bool
    """Answer this and all later questions with the latest published parameters."""
    again: bool
    """The asker asks again within this rollout, as soon as its environments have stepped."""
    slot: int
    row: int
    finals: int
    step: int
    """Number of the lanes' step. It is part of the noise's key."""
    first_lane: int


class EnvSource(Protocol):
    """Steps B lanes of one environment together. ``envs/`` has an adapter for each kind of environment."""

    spaces: Spaces
    num_lanes: int
    same_step: bool
    """True: after an episode's end, ``obs`` holds the next episode's first observation and ``final_obs`` the last one.
    False: the next step of that lane is its reset, which ``StepResult.reset`` marks."""
    restorable: bool
    """True: penstock resets each episode itself, with a seed. So seed and actions can restore the episode, and a long
    one a `snapshot` and actions."""

    def watch(self, sign: memoryview) -> None:
        """Store the lane that is being stepped or reset in ``sign[0]``, an int64, if lanes are stepped one by one.

        So the supervisor can tell one hung environment from many slow ones. It costs 25 ns a step.
        """
        ...

    def keep_infos(self) -> Sequence[Any] | None:
        """From now on, keep the latest ``info`` of each lane's environment.

        Returns:
            One info for each lane, always up to date. ``None``: this source has no infos of single lanes.
        """
        ...

    def reset(self, seeds: Sequence[int]) -> Arrays:
        """Start an episode in every lane: field -> ``[B, ...]``. ``seeds`` holds one seed for each lane."""
        ...

    def step(self, action: Array, next_seeds: Callable[[int], int]) -> StepResult:
        """Step every lane. ``action`` ``[B, ...]`` is in the environment's own units and dtype.

        A same-step source calls ``next_seeds(lane)`` once for each lane whose episode just ended, for the seed of the
        next one. A source that is not restorable calls it, too, because the call counts the episode. It ignores the
        seed.
        """
        ...

    def replay(
        self, lane: int, seed: int, action: Array, base: bytes | None = None
    ) -> Iterator[tuple[Arrays, float]] | None:
        """Restore one lane's episode: reset the lane with ``seed``, then take each ``action`` of ``[n, ...]`` in order.

        Args:
            lane: to restore.
            seed: of its episode.
            action: the actions, in the environment's own units.
            base: a `snapshot` of the lane, which is laid on it after the reset. The actions go on from there.

        Returns:
            Before the first action, and after each: the observations (field -> ``[B, ...]``; only element ``lane``
            counts) and the reward. Stops early if the episode ends. ``None``: this source cannot reset a single lane.

        Raises:
            SnapshotError: at the first element: ``base`` does not fit.
        """
        ...

    def snapshot(self, lane: int) -> bytes | None:
        """The whole state of one lane, in the middle of its episode; ``None``: this source cannot tell lanes apart.

        Raises:
            SnapshotError: the environment holds something that cannot be copied.
        """
        ...

    def close(self) -> None:
        """Close the environment. May be called twice."""
        ...


class PolicyBackend(Protocol):
    """Runs ``act`` for the published parameters: the native kernel, ONNX Runtime or torch."""

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy new parameters and statistics. The caller may reuse the arrays afterwards."""
        ...

    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``.

        Args:
            inputs: name -> ``[n, ...]``: the observation fields; ``noise`` float32, as the policy's ``NoiseSpec``
                describes it; ``explore`` float32 ``[n]``, 0 is greedy. A policy with memory also takes its carry by
                name, and ``first`` bool ``[n]``: the carry of such a lane counts as zero.
            out: name -> ``[n, ...]``, for each wanted output (``action``, ``log_prob``, ``value``, ``q``), and for the
                carry that the next answer begins with. A carry may be the same array in ``inputs`` and ``out``.
        """
        ...
