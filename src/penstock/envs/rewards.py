"""Rewards of the user's own: looks them up, checks their signature, and calls them for one lane and step at a time.

- A function is called in each step.
- A class makes one object for each episode. Its ``step`` is called in each step. Its ``end``, if it has one, is called
  after the last step, and its result is added to the last row. The object ends with its episode, so an episode that is
  restored by its actions restores the object as well.
- The parameters of both name the values that they take.

Leaves the environment's own rewards unchanged.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.envs.actions import cutter
from penstock.envs.fields import nested, one_line
from penstock.envs.gymnasium import ScalarSource
from penstock.envs.imports import find_callable, name_of
from penstock.envs.rows import as_number
from penstock.envs.vector import VectorSource
from penstock.envs.wrapped import WrappedSource
from penstock.errors import BadDataError, EnvError, SnapshotError, place_in
from penstock.types import Array, Arrays, Discrete, EnvSource, Replayed, StepResult

__all__ = ["KNOWN", "OwnReward", "RewardedSource", "find_reward", "no_infos"]

KNOWN = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "info")
"""The parameter names that a reward may have."""


class _Part(NamedTuple):
    """A function that gives a number."""

    name: str
    """Its name in error texts."""
    call: Callable[..., Any]
    names: tuple[str, ...]
    """Of its parameters."""


class OwnReward(NamedTuple):
    """A reward whose signature was read.

    ``step`` takes any of ``obs, action, reward, next_obs, terminated, truncated, info``. It gives the reward of a step.
    """

    name: str
    """Its name in error texts."""
    given: Callable[..., Any]
    """The function or the class."""
    step: tuple[str, ...]
    """Names of the parameters of its step."""
    end: tuple[str, ...] | None
    """Names of the parameters of its end; ``None`` if it has no end."""

    @property
    def wants_info(self) -> bool:
        """True if it takes the environment's info."""
        return self._reads("info")

    @property
    def wants_next_obs(self) -> bool:
        """True if it takes the observation after the step."""
        return self._reads("next_obs")

    def _reads(self, parameter: str) -> bool:
        return parameter in self.step or parameter in (self.end or ())

    def begin(self, lane: str) -> tuple[_Part, _Part | None]:
        """The functions for the rewards of one new episode: of its steps, and of its end.

        Args:
            lane: name of the episode's lane, for error texts.

        Raises:
            BadDataError: the class failed.
        """
        if not inspect.isclass(self.given):
            return _Part(self.name, self.given, self.step), None
        try:
            episode: Any = self.given()
        except Exception as error:
            raise _failed(f"{self.name} failed for {lane}", self.given, error) from error
        step = _Part(f"step of {self.name}", episode.step, self.step)
        return step, None if self.end is None else _Part(f"end of {self.name}", episode.end, self.end)


def find_reward(given: str | bytes | Callable[..., Any]) -> OwnReward:
    """Look up a reward and read its signature.

    Args:
        given: ``module:name``, a pickled callable, or a callable: a function, or a class with ``step``.

    Raises:
        EnvError: it is not found, cannot be called, has no ``step``, or has an unknown parameter.
    """
    name = f"reward {name_of(given)}"
    found: Any = find_callable(given, "reward")
    if not inspect.isclass(found):
        return OwnReward(name, found, _names(name, found), None)
    step, end = getattr(found, "step", None), getattr(found, "end", None)
    if not callable(step):
        raise EnvError(f"{name} is a class without step: give it step(self, ...) -> float, and end(self, ...) -> float")
    needed = [parameter for parameter in _parameters(name, found) if parameter.default is parameter.empty]
    for parameter in needed:
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise EnvError(
                f"{name} is made for each episode without arguments; give {parameter.name} of its class a default"
            )
    ends = None if end is None else _names_of_method(f"end of {name}", found, "end")
    return OwnReward(name, found, _names_of_method(f"step of {name}", found, "step"), ends)


def no_infos(reward: OwnReward, name: str) -> EnvError:
    """The error for a reward that takes ``info`` of an environment that steps many lanes at once."""
    return EnvError(
        f"{reward.name} takes info, but {name} steps many lanes in one call and gives no info for single lanes; "
        f"leave info out of its parameters"
    )


def _names_of_method(what: str, owner: type, method: str) -> tuple[str, ...]:
    bound = isinstance(inspect.getattr_static(owner, method), staticmethod | classmethod)
    return _names(what, getattr(owner, method), own=0 if bound else 1)


def _names(what: str, function: Callable[..., Any], *, own: int = 0) -> tuple[str, ...]:
    """The names of ``KNOWN`` among a function's parameters, after the first ``own``. Others keep their defaults."""
    names = []
    for parameter in _parameters(what, function)[own:]:
        by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if by_name and parameter.name in KNOWN:
            names.append(parameter.name)
        elif not by_name or parameter.default is parameter.empty:
            raise EnvError(f"{what} takes {parameter}; a reward takes {', '.join(KNOWN)}, by these names")
    return tuple(names)


def _parameters(what: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise EnvError(f"{what} has no signature that can be read: {one_line(error)}") from error


class RewardedSource(WrappedSource):
    """A source that also computes a reward of the user's own for each step.

    Attributes:
        reward_name: of the own reward, for error texts.
        shaped: ``[B]`` float32: the own rewards of the last step. A NaN or infinity of the environment is kept instead.
        ended: sums of own rewards over each episode that ended in the last step, in lane order.

    Args:
        source: steps the lanes. Its results are handed on unchanged.
        reward: the user's own.
        name: of the environment, for error texts.
        first_lane: number of the first lane, for error texts.

    Raises:
        EnvError: the reward takes ``info``, and the source has none for single lanes; or it takes ``next_obs``, and
            the source never gives the last one of an episode.
    """

    def __init__(self, source: ScalarSource | VectorSource, reward: OwnReward, name: str, first_lane: int) -> None:
        super().__init__(source, source.spaces)
        self._reward = reward
        self.reward_name = reward.name
        self._lane_names = [f"lane {first_lane + lane} of {name}" for lane in range(source.num_lanes)]
        # An info's action mask has no path. Rewards name a place in a Tuple as a text.
        self._fields = tuple(
            (field, space, tuple(map(str, source.paths[field])))
            for field, space in source.spaces.obs
            if field in source.paths
        )
        self._cut = cutter(source.spaces.action, source.num_lanes)
        self._infos = _infos(source, reward, name)
        if reward.wants_next_obs:
            _need_last_observations(source, reward)
        self.shaped = np.zeros(source.num_lanes, np.float32)
        # A number that float32 cannot hold becomes infinity here. The node that stores rows looks for infinity.
        self._cells: Any = self.shaped.data
        self.ended: list[float] = []
        self._returns = [0.0] * source.num_lanes
        self._episodes = [reward.begin(lane) for lane in self._lane_names]
        self._seen: list[Any] = [None] * source.num_lanes

    def reset(self, seeds: Sequence[int]) -> Arrays:
        """As the source."""
        obs = self._source.reset(seeds)
        for lane in range(self.num_lanes):
            self._begin(lane, obs)
        return obs

    def step(self, action: Array, next_seeds: Callable[[int], int]) -> StepResult:
        """As the source; also computes the own rewards.

        Raises:
            BadDataError: the reward returned no number. The text names reward and lane.
        """
        actions = list(self._cut(action))
        result = self._source.step(action, next_seeds)
        self.ended.clear()
        for lane, taken in enumerate(actions):
            if result.reset[lane]:
                self._begin(lane, result.obs)
                self._cells[lane] = 0.0
                continue
            ends = bool(result.terminated[lane]), bool(result.truncated[lane])
            over = any(ends)
            led_to = self._of_lane(result.final_obs if over and self.same_step else result.obs, lane)
            self._value(lane, taken, float(result.reward[lane]), led_to, ends)
            if over:
                self.ended.append(self._returns[lane])
                if self.same_step:
                    self._begin(lane, result.obs)
        return result

    def begin(self, lane: int, seed: int) -> Arrays | None:
        """As the source."""
        obs = self._source.begin(lane, seed)
        if obs is not None:
            self._begin(lane, obs)
        return obs

    def replay(self, actions: Mapping[int, Array]) -> Iterator[Replayed]:
        """As the source; also restores the own rewards."""
        left = {lane: iter(taken) for lane, taken in actions.items()}
        for replayed in self._source.replay(actions):
            for lane in replayed.lanes:
                one = next(left[lane])
                taken = list(self._cut(np.broadcast_to(one, (self.num_lanes, *one.shape))))[lane]
                led_to = self._of_lane(replayed.obs, lane)
                # A restored episode continues after these steps, so none of them ended it.
                self._value(lane, taken, float(replayed.reward[lane]), led_to, (False, False))
            yield replayed

    def snapshot(self, lane: int) -> bytes | None:
        """As the source, with the reward's object of the lane's episode."""
        from penstock.envs.snapshots import capture, joined  # noqa: PLC0415  # only long episodes need it

        of_source = self._source.snapshot(lane)
        if of_source is None:
            return None
        own = {"episode": self._object(lane), "return": self._returns[lane], "seen": self._seen[lane]}
        return joined([of_source, capture(own)])

    def apply_snapshot(self, lane: int, base: bytes) -> Arrays:
        """As the source, with the reward's object of the lane's episode."""
        from penstock.envs.snapshots import apply  # noqa: PLC0415  # only long episodes need it

        of_source, of_reward = _parts(base)
        obs = self._source.apply_snapshot(lane, of_source)
        found = apply(of_reward, {"episode": self._object(lane)})
        self._returns[lane], self._seen[lane] = found["return"], found["seen"]
        return obs

    def own_return(self, lane: int) -> float:
        """The sum of own rewards over the lane's episode so far."""
        return self._returns[lane]

    def _object(self, lane: int) -> Any:
        """The object that a reward's class has made for the lane's episode; ``None`` for a function."""
        return getattr(self._episodes[lane][0].call, "__self__", None) if inspect.isclass(self._reward.given) else None

    def _begin(self, lane: int, obs: Arrays) -> None:
        """Begin an episode in ``lane`` with the observation ``obs``."""
        self._episodes[lane] = self._reward.begin(self._lane_names[lane])
        self._returns[lane] = 0.0
        self._seen[lane] = self._of_lane(obs, lane)

    def _of_lane(self, obs: Arrays, lane: int) -> Any:
        """A copy of one lane's observation in the user's form: an array, a number, or a dict of these."""
        return nested(
            (path, int(obs[name][lane]) if isinstance(space, Discrete) else obs[name][lane].copy())
            for name, space, path in self._fields
        )

    def _value(self, lane: int, action: Any, reward: float, next_obs: Any, ends: tuple[bool, bool]) -> None:
        """Compute the own reward of one step, plus that of the episode's end if the step ended it.

        Args:
            lane: of the step.
            action: as its environment got it.
            reward: of the environment.
            next_obs: the observation after the step.
            ends: the step terminated the episode; the step truncated it.
        """
        obs, self._seen[lane] = self._seen[lane], next_obs
        if not math.isfinite(reward):
            self._cells[lane] = reward
            return
        info = {} if self._infos is None else self._infos[lane]
        known = dict(zip(KNOWN, (obs, action, reward, next_obs, *ends, info), strict=True))
        step, end = self._episodes[lane]
        value = self._number(lane, step, known)
        if end is not None and any(ends):
            value += self._number(lane, end, known)
        self._cells[lane] = value
        self._returns[lane] += self._cells[lane]

    def _number(self, lane: int, part: _Part, known: dict[str, Any]) -> float:
        try:
            value = part.call(**{name: known[name] for name in part.names})
        except Exception as error:
            raise _failed(f"{part.name} failed for {self._lane_names[lane]}", part.call, error) from error
        if isinstance(value, float):
            return value
        try:
            return as_number(value, part.name)
        except BadDataError:
            given = one_line(repr(value))
            raise BadDataError(f"{part.name} returned {given} for {self._lane_names[lane]}; return a number") from None


def _failed(what: str, function: Callable[..., Any], error: Exception) -> BadDataError:
    """The error for a function of the user's. It would fail again in every life, so its process is not started anew."""
    place = place_in(str(getattr(function, "__module__", "")), error)
    return BadDataError(f"{what}: {type(error).__name__}: {one_line(error, 300)}{place}")


def _parts(base: bytes) -> list[bytes]:
    """The snapshots of the source and of the reward."""
    from penstock.envs.snapshots import parted  # noqa: PLC0415  # only long episodes need it

    parts = parted(base)
    if len(parts) != 2:
        raise SnapshotError("this is no snapshot of an environment with a reward of the user's own")
    return parts


def _need_last_observations(source: ScalarSource | VectorSource, reward: OwnReward) -> None:
    try:
        source.need_last_observations()
    except EnvError as error:
        raise EnvError(f"{reward.name} takes next_obs, but {error}; leave next_obs out of its parameters") from None


def _infos(source: EnvSource, reward: OwnReward, name: str) -> Sequence[Any] | None:
    if not reward.wants_info:
        return None
    infos = source.keep_infos()
    if infos is None:
        raise no_infos(reward, name)
    return infos
