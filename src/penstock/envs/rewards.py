"""A reward of the user's own: looked up, checked by its signature, and called for one lane and one step at a time.

A function is called each step. Of a class each episode makes an object: its ``step`` is called each step, its ``end``,
if it has one, after the last one, and what that gives is added to the episode's last row. Either names what it wants to
know by its parameters. An object lives no longer than its episode, so an episode that is restored by its actions
restores it too. The environment's own rewards stay as they are; what is done with both, others decide.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.envs.actions import cutter
from penstock.envs.fields import one_line
from penstock.envs.imports import find_callable, name_of
from penstock.envs.rows import as_number
from penstock.errors import EnvError
from penstock.types import Array, Arrays, Discrete, EnvSource, StepResult

__all__ = ["KNOWN", "OwnReward", "RewardedSource", "find_reward", "no_infos"]

KNOWN = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "info")
"""What a reward may name among its parameters."""


class _Part(NamedTuple):
    """A function that gives a number, and the names of what it is given."""

    call: Callable[..., Any]
    names: tuple[str, ...]


class OwnReward(NamedTuple):
    """A reward that has been looked at.

    ``step(obs, action, reward, next_obs, terminated, truncated, info)``, as many of them as it names, gives the reward
    of a step.
    """

    name: str
    """What messages call it."""
    given: Callable[..., Any]
    """The function or the class."""
    step: tuple[str, ...]
    """What its step names."""
    end: tuple[str, ...] | None
    """What its end names; ``None`` where it has none."""

    @property
    def wants_info(self) -> bool:
        """True if it looks at what the environment gives beside observation and reward."""
        return "info" in self.step or "info" in (self.end or ())

    def begin(self) -> tuple[_Part, _Part | None]:
        """What gives the rewards of one episode: of its steps, and of its end."""
        if not inspect.isclass(self.given):
            return _Part(self.given, self.step), None
        episode: Any = self.given()
        return _Part(episode.step, self.step), None if self.end is None else _Part(episode.end, self.end)


def find_reward(given: str | bytes | Callable[..., Any]) -> OwnReward:
    """The reward that ``given`` stands for.

    Args:
        given: ``module:name``, a pickled callable, or a callable: a function, or a class with ``step``.

    Raises:
        EnvError: it is not there, cannot be called, has no ``step``, or names what no reward is given.
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
            raise EnvError(f"{name} is made anew for each episode, without arguments; its class needs {parameter.name}")
    ends = None if end is None else _names_of_method(f"end of {name}", found, "end")
    return OwnReward(name, found, _names_of_method(f"step of {name}", found, "step"), ends)


def no_infos(reward: OwnReward, name: str) -> EnvError:
    """That a reward wants what an environment does not give."""
    return EnvError(
        f"{reward.name} takes info, which {name} does not give for single lanes, because it steps many in one call; "
        f"leave it out of its parameters"
    )


def _names_of_method(what: str, owner: type, method: str) -> tuple[str, ...]:
    bound = isinstance(inspect.getattr_static(owner, method), staticmethod | classmethod)
    return _names(what, getattr(owner, method), own=0 if bound else 1)


def _names(what: str, function: Callable[..., Any], *, own: int = 0) -> tuple[str, ...]:
    """Which of ``KNOWN`` a function names behind so many ``own`` parameters; others keep their defaults."""
    names = []
    for parameter in _parameters(what, function)[own:]:
        by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if by_name and parameter.name in KNOWN:
            names.append(parameter.name)
        elif not by_name or parameter.default is parameter.empty:
            raise EnvError(f"{what} takes {parameter}; a reward is given {', '.join(KNOWN)}, by these names")
    return tuple(names)


def _parameters(what: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise EnvError(f"{what} does not say what it takes: {one_line(error)}") from error


class RewardedSource(EnvSource):
    """A source whose lanes' steps are also valued by a reward of the user's own.

    Attributes:
        reward_name: what messages call the reward.
        shaped: ``[B]`` float32: the own reward of the last step; where the environment's is no number, that.
        ended: the sums of own rewards over the episodes that ended in the last step, by lane.

    Args:
        source: steps the lanes; its results are handed on as they are.
        reward: values them.
        name: what messages call the environment.
        first_lane: the number that messages give the first lane.

    Raises:
        EnvError: the reward wants ``info``, and the source has none for single lanes.
    """

    def __init__(self, source: EnvSource, reward: OwnReward, name: str, first_lane: int) -> None:
        self.spaces, self.num_lanes = source.spaces, source.num_lanes
        self.same_step, self.restorable = source.same_step, source.restorable
        self._source, self._reward = source, reward
        self.reward_name = reward.name
        self._lane_names = [f"lane {first_lane + lane} of {name}" for lane in range(source.num_lanes)]
        self._cut = cutter(source.spaces.action, source.num_lanes)
        self._infos = _infos(source, reward, name)
        self.shaped = np.zeros(source.num_lanes, np.float32)
        # A number that float32 cannot hold becomes infinite in silence here; who stores the rows looks for those.
        self._cells: Any = self.shaped.data
        self.ended: list[float] = []
        self._returns = [0.0] * source.num_lanes
        self._episodes = [reward.begin() for _ in range(source.num_lanes)]
        self._seen: list[Any] = [None] * source.num_lanes

    def watch(self, sign: memoryview) -> None:
        """As the source."""
        self._source.watch(sign)

    def keep_infos(self) -> Sequence[Any] | None:
        """As the source."""
        return self._source.keep_infos()

    def reset(self, seeds: Sequence[int]) -> Arrays:
        """As the source."""
        obs = self._source.reset(seeds)
        for lane in range(self.num_lanes):
            self._begin(lane, obs)
        return obs

    def step(self, action: Array, next_seeds: Callable[[int], int]) -> StepResult:
        """As the source; values what it gave.

        Raises:
            BadDataError: the reward gave what is no number; it names reward and lane.
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
            led_to = _of_lane(result.final_obs if over and self.same_step else result.obs, lane, self.spaces.obs)
            self._value(lane, taken, float(result.reward[lane]), led_to, ends)
            if over:
                self.ended.append(self._returns[lane])
                if self.same_step:
                    self._begin(lane, result.obs)
        return result

    def replay(self, lane: int, seed: int, action: Array) -> Iterator[tuple[Arrays, float]] | None:
        """As the source; the lane's own rewards are found again with its steps."""
        replayed = self._source.replay(lane, seed, action)
        return None if replayed is None else self._replayed(lane, action, replayed)

    def close(self) -> None:
        """As the source."""
        self._source.close()

    def _replayed(
        self, lane: int, action: Array, steps: Iterator[tuple[Arrays, float]]
    ) -> Iterator[tuple[Arrays, float]]:
        obs, reward = next(steps)
        self._begin(lane, obs)
        yield obs, reward
        staged = np.zeros((self.num_lanes, *action.shape[1:]), action.dtype)
        for one, (obs, reward) in zip(action, steps, strict=False):
            staged[lane] = one
            taken = list(self._cut(staged))[lane]
            # An episode that is restored goes on behind each of these steps.
            self._value(lane, taken, reward, _of_lane(obs, lane, self.spaces.obs), (False, False))
            yield obs, reward

    def _begin(self, lane: int, obs: Arrays) -> None:
        """An episode begins in ``lane`` with ``obs``."""
        self._episodes[lane] = self._reward.begin()
        self._returns[lane] = 0.0
        self._seen[lane] = _of_lane(obs, lane, self.spaces.obs)

    def _value(self, lane: int, action: Any, reward: float, next_obs: Any, ends: tuple[bool, bool]) -> None:
        """Find the lane's own reward of a step, that of the episode's end with it.

        Args:
            lane: which.
            action: as its environment was given it.
            reward: what the environment gave.
            next_obs: what the step led to.
            ends: whether the step terminated the episode, and whether it truncated it.
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
            error.add_note(f"in {self._reward.name}, for {self._lane_names[lane]}")
            raise
        return (
            value
            if isinstance(value, float)
            else as_number(value, f"what {self._reward.name} gave for {self._lane_names[lane]}")
        )


def _infos(source: EnvSource, reward: OwnReward, name: str) -> Sequence[Any] | None:
    if not reward.wants_info:
        return None
    infos = source.keep_infos()
    if infos is None:
        raise no_infos(reward, name)
    return infos


def _of_lane(obs: Arrays, lane: int, fields: tuple[tuple[str, Any], ...]) -> Any:
    """One lane's observation as the user knows it: an array, a number, or a dict of these. It is nobody else's."""
    found: dict[str, Any] = {}
    for name, space in fields:
        value = int(obs[name][lane]) if isinstance(space, Discrete) else obs[name][lane].copy()
        *above, key = name.split(".")
        inner = found
        for part in above:
            inner = inner.setdefault(part, {})
        inner[key] = value
    return found["obs"]
