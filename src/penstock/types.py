"""The glossary as types: plain data and contracts that rooms share. Holds no behaviour beyond arithmetic on shapes.

Shapes are written ``[T, B, ...]``: time first, then lanes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "ArraySpec",
    "Arrays",
    "BackendSpec",
    "Box",
    "Discrete",
    "EnvFactory",
    "EnvRecipe",
    "EnvReference",
    "EnvSource",
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
"""Makes an environment; called without arguments, or with ``num_envs=`` if it declares that parameter."""


@dataclass(frozen=True)
class Wrapper:
    """What is put around an environment: ``make(env, **arguments)``."""

    make: "str | bytes | Callable[..., Any]"
    """``module:name``, cloudpickle bytes, or, before it travels, the callable itself."""
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class EnvRecipe:
    """An environment with arguments and in wrappers."""

    env: "str | bytes | EnvFactory"
    """A Gymnasium id, ``module:name``, cloudpickle bytes, or, before it travels, the factory itself."""
    arguments: Mapping[str, Any]
    """Keyword arguments for what makes it."""
    wrap: tuple[Wrapper, ...]
    """The first one innermost."""


EnvReference: TypeAlias = str | bytes | EnvRecipe
"""How an environment travels between processes: a Gymnasium id, ``module:name``, or a factory as cloudpickle bytes;
alone, or in a recipe."""


@dataclass(frozen=True)
class ArraySpec:
    """Name, shape and dtype of one array. ``dtype`` is a numpy name, so that a spec stays plain data."""

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
        """The same array with further leading dimensions."""
        return ArraySpec(self.name, (*leading, *self.shape), self.dtype)


@dataclass(frozen=True)
class Stack:
    """An observation's first axis holds its latest frames, the newest last: each step adds one behind the others."""

    frames: int
    """At least 2."""
    padding: Literal["first", "zero"]
    """What stands for the frames before an episode's first: that one again, or zeros."""


@dataclass(frozen=True)
class Box:
    """A box of numbers. ``low`` and ``high`` hold one bound for all elements, or one each in C order."""

    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    stack: Stack | None = field(default=None, repr=False)
    """``None``: the numbers of one observation are not known to come again in the next. Not part of what a checkpoint
    names its spaces by: whoever learns from whole observations need not know."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bounded(self) -> bool:
        """True if every element has finite bounds on both sides."""
        return all(map(math.isfinite, self.low)) and all(map(math.isfinite, self.high))


@dataclass(frozen=True)
class Discrete:
    """The integers ``start .. start + n - 1``."""

    n: int
    start: int = 0


Space: TypeAlias = Box | Discrete


@dataclass(frozen=True)
class Spaces:
    """The spaces of one lane.

    ``obs`` maps field names to spaces: ``{"obs": ...}`` for a plain observation, ``{"obs.<name>": ...}``, sorted by
    name, for one of dicts and tuples: a name is a key, a place (``0``) or several with dots (``a.0``). These are the
    names under which observations are stored in every row.
    """

    obs: tuple[tuple[str, Space], ...]
    action: Space

    def obs_specs(self) -> tuple[ArraySpec, ...]:
        """One spec for each observation field, without leading dimensions; Discrete is an int64 scalar."""
        return tuple(
            ArraySpec(name, space.shape, space.dtype) if isinstance(space, Box) else ArraySpec(name, (), "int64")
            for name, space in self.obs
        )

    def stacks(self) -> dict[str, Stack]:
        """The observation fields that are stacks of frames."""
        return {name: space.stack for name, space in self.obs if isinstance(space, Box) and space.stack is not None}

    def newest(self) -> "Spaces":
        """The same, where observations hold of each stack its newest frame alone."""
        return Spaces(tuple((name, _newest(space)) for name, space in self.obs), self.action)

    def action_spec(self) -> ArraySpec:
        """How an action is stored in a row: the policy's own units, float32 for Box, int64 (from 0) for Discrete."""
        if isinstance(self.action, Box):
            return ArraySpec("action", self.action.shape, "float32")
        return ArraySpec("action", (), "int64")


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
    """The noise that ``act`` takes as an input, per lane and step: so that acting is a pure function."""

    distribution: Literal["normal", "uniform", "gumbel"]
    shape: tuple[int, ...]


class StepResult(NamedTuple):
    """What one vector step of a source gives. All arrays are the source's own and valid until its next call.

    Checking six arrays costs more than copying them: a source that writes into the same arrays every time hands out the
    same ``StepResult``, and one that hands out the same has replaced none of its arrays.
    """

    obs: Arrays
    """field -> ``[B, ...]``: what the policy sees next; after an episode ended, the next episode's first observation
    (same-step sources) or its last one (next-step sources)."""
    reward: Array
    """``[B]`` float32."""
    terminated: Array
    """``[B]`` bool."""
    truncated: Array
    """``[B]`` bool."""
    reset: Array
    """``[B]`` bool: this step was the source's own reset, its action was ignored; the row is not valid."""
    final_obs: Arrays
    """field -> ``[B, ...]``: for same-step sources the last observation of lanes that ended in this step."""


class Wanted(IntEnum):
    """What a question to a policy wants."""

    ROW = 0
    """All outputs of ``act`` for row ``row``, its ``policy_version``, and the environment's own actions."""
    VALUE = 1
    """``value`` of row ``row``."""
    FINAL_VALUE = 2
    """``final_value`` of the first ``finals`` last observations."""


class Question(NamedTuple):
    """What one asker wants to know about one slot of the stream that it writes. It travels as plain numbers."""

    asker: int
    """Index among those whom one node answers."""
    wanted: int
    """One of `Wanted`."""
    refresh: bool
    """Answer this, and what follows, with the latest published parameters."""
    slot: int
    row: int
    finals: int
    step: int
    """The lanes' count of steps; it keys the noise."""
    first_lane: int


class EnvSource(Protocol):
    """Steps B lanes of one environment together. An adapter in ``envs/`` gives each kind of environment this shape."""

    spaces: Spaces
    num_lanes: int
    same_step: bool
    """True: an ended lane's next observation is already the new episode's, and ``final_obs`` holds the last one.
    False: the next step of that lane is its reset, flagged in ``StepResult.reset``."""
    restorable: bool
    """True: penstock resets each episode itself, from ``seeds``; so the episode can be restored by seed and actions."""

    def watch(self, sign: memoryview) -> None:
        """Note in ``sign[0]``, an int64, which lane is being stepped or reset, where lanes take their turns.

        So whoever looks at it from outside can tell one slow environment from many, for 25 ns a step.
        """
        ...

    def keep_infos(self) -> Sequence[Any] | None:
        """From here on, keep what each lane's environment gave beside its last observation and reward.

        Returns:
            One for each lane, kept up to date; ``None``: this source has none for single lanes.
        """
        ...

    def reset(self, seeds: Sequence[int]) -> Arrays:
        """Start an episode in every lane: field -> ``[B, ...]``. ``seeds`` holds one seed a lane."""
        ...

    def step(self, action: Array, next_seeds: Callable[[int], int]) -> StepResult:
        """Step every lane. ``action`` ``[B, ...]`` is in the environment's own units and dtype.

        A same-step source asks ``next_seeds(lane)`` once for each lane that just ended, for its next episode's seed.
        One that is not restorable asks as well, because the question counts the episode, and does not use the answer.
        """
        ...

    def replay(self, lane: int, seed: int, action: Array) -> Iterator[tuple[Arrays, float]] | None:
        """Restore one lane's episode: reset it with ``seed``, then take ``action`` ``[n, ...]`` one after the other.

        Returns:
            After the reset, and after each action: the observations (field -> ``[B, ...]``; only the lane's row counts)
            and the reward. It ends early where the episode does. ``None``: this source cannot reset a lane alone.
        """
        ...

    def close(self) -> None:
        """Free what the environment holds. May be called twice."""
        ...


class PolicyBackend(Protocol):
    """Runs ``act`` for the published parameters: the native kernel, ONNX Runtime or torch."""

    def load(self, published: Mapping[str, Array]) -> None:
        """Take new parameters and statistics; the arrays may be reused by the caller afterwards."""
        ...

    def act(self, obs: Mapping[str, Array], noise: Array, explore: Array, out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``.

        Args:
            obs: field -> ``[n, ...]``.
            noise: ``[n, ...]`` float32, of the spec's ``NoiseSpec``.
            explore: ``[n]`` float32; 0 is greedy.
            out: output name -> array ``[n, ...]`` (``action``, and ``log_prob`` and ``value`` where wanted).
        """
        ...
