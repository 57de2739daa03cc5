"""An environment as it travels between processes, and as a source of steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from penstock.types.arrays import Array, Arrays
from penstock.types.spaces import Spaces

__all__ = ["EnvFactory", "EnvKind", "EnvRecipe", "EnvReference", "EnvSource", "Replayed", "StepResult", "Wrapper"]

EnvFactory: TypeAlias = Callable[..., Any]
"""Makes an environment. It is called without arguments, or with ``num_envs=`` if it declares that parameter."""

EnvKind: TypeAlias = Literal["scalar", "vector", "game"]
"""``scalar``: each call steps one lane. ``vector``: one call steps all lanes. ``game``: a game that connects drives the
lane; nobody makes or resets it."""


@dataclass(frozen=True)
class Wrapper:
    """A wrapper around an environment: ``make(env, **arguments)``."""

    make: "str | bytes | Callable[..., Any]"
    """``module:name`` or cloudpickle bytes. In the user's own process also the callable itself."""
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class EnvRecipe:
    """An environment with its arguments and wrappers, and who plays the agents that do not learn."""

    env: "str | bytes | EnvFactory"
    """A Gymnasium id, ``module:name`` or cloudpickle bytes. In the user's own process also the factory itself."""
    arguments: Mapping[str, Any]
    """Keyword arguments for the environment's constructor or factory."""
    wrap: tuple[Wrapper, ...]
    """The first one is the innermost."""
    opponents: object | None = None
    """A `penstock.envs.opponents.PoolSettings`, plain data as well; ``None``: every agent learns."""


EnvReference: TypeAlias = str | bytes | EnvRecipe
"""An environment as it travels between processes: a Gymnasium id, ``module:name``, a factory as cloudpickle bytes, or a
recipe with one of these."""


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


class Replayed(NamedTuple):
    """One step of a replay. The source owns all arrays; they are valid until its next call."""

    lanes: Sequence[int]
    """Those that have taken the next one of their actions."""
    obs: Arrays
    """field -> ``[B, ...]``: the latest observations of all lanes."""
    reward: Array
    """``[B]`` float32. Only those of ``lanes`` count."""


class EnvSource(Protocol):
    """Steps B lanes of one environment together. ``envs/`` has an adapter for each kind of environment."""

    spaces: Spaces
    num_lanes: int
    same_step: bool
    """True: after an episode's end, ``obs`` holds the next episode's first observation and ``final_obs`` the last one.
    False: the next step of that lane is its reset, which ``StepResult.reset`` marks."""
    restorable: bool
    """True: penstock resets each episode itself, with a seed. So a seed and a `replay` of its actions can restore the
    episode, and a long one a `snapshot` and actions."""

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

    def follow(self, metrics: Sequence[str]) -> Mapping[int, tuple[float, ...]]:
        """From now on, read these numbers in the last info of each episode.

        Args:
            metrics: names in the info.

        Returns:
            Lane -> the numbers of its episode, one for each name, for each episode that ended in the last step. Always
            up to date, and in lane order. NaN: the info does not have that number.
        """
        ...

    def take_version(self, version: int) -> None:  # noqa: ARG002 - most sources have no opponents
        """From now on, the policy of this version acts in the lanes. Only environments with opponents use it.

        In lock step it depends on nothing but the number of the rollout. Without any call, the version is not known.
        """
        return

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

    def begin(self, lane: int, seed: int) -> Arrays | None:
        """Begin an episode in one lane. The other lanes stay where they are.

        Returns:
            The latest observations of all lanes. ``None``: this source cannot reset a single lane.
        """
        ...

    def replay(self, actions: Mapping[int, Array]) -> Iterator[Replayed]:
        """Restore episodes: take lanes to where their actions lead. Only for a source that is `restorable`.

        Call it right after `reset`, and after `apply_snapshot` of the lanes that have a snapshot. A lane whose episode
        ends takes no more of its actions, and has to `begin` anew. Once the iterator has ended, lanes without actions
        stand where they stood before.

        Args:
            actions: lane -> ``[n, ...]``: its actions in the environment's own units, in order.

        Returns:
            One `Replayed` for each step. It names the lanes that have taken the step, which may be none. Some sources
            replay one lane after the other, others all lanes together.
        """
        ...

    def snapshot(self, lane: int) -> bytes | None:
        """The whole state of one lane, in the middle of its episode; ``None``: this source cannot tell lanes apart.

        Raises:
            SnapshotError: the environment holds something that cannot be copied.
        """
        ...

    def apply_snapshot(self, lane: int, base: bytes) -> Arrays:
        """Put a lane into the state that `snapshot` has copied. Reset the lane before.

        Returns the latest observations of all lanes.

        Raises:
            SnapshotError: the snapshot does not fit. Then `begin` the lane.
        """
        ...

    def close(self) -> None:
        """Close the environment. May be called twice."""
        ...
