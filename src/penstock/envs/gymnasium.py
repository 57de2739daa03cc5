"""Scalar environments: B of them in one process, stepped in a plain loop.

penstock resets them in the step that ends an episode, so an episode depends on its seed and its actions alone. Imports
no Gymnasium: an environment is any object with spaces, ``reset`` and ``step``.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.envs.actions import cutter
from penstock.envs.fields import field_paths, one_line
from penstock.envs.last_infos import LastInfos
from penstock.envs.masks import KEY, Masks, late_mask, with_mask
from penstock.envs.older_api import OlderEnv, is_current, reset_values
from penstock.envs.older_gym import refuse_checker
from penstock.envs.rows import ObservationRows, Store, as_number, as_truth
from penstock.envs.spaces import spaces_of
from penstock.envs.stacks import stack_of
from penstock.errors import BadDataError
from penstock.types import Array, Arrays, EnvSource, Replayed, StepResult

__all__ = ["ScalarSource"]


class ScalarSource(EnvSource):
    """Steps a list of environments, one for each lane.

    Attributes:
        agents: lanes of one environment.
        first_info: the info with which the latest episode began.
        paths: as ``field_paths`` gives them.

    Args:
        name: of the environment, for error texts.
        envs: the environments. The source owns and closes them.
        first_lane: number of the first one, for error texts.
        ignore_obs: fields of the observation to leave out, as in ``used_fields``.
        mask: the field of the action mask, if it is used, as `mask_given` finds it.
        masks: the run uses a mask if there is one: without ``mask``, one that comes in an info is refused.

    Raises:
        ConfigError: ``ignore_obs`` names an unknown field, or leaves none.
        EnvError: its metadata describe impossible observations.
        SpaceError: a space is not supported.
    """

    same_step = True
    agents = 1

    def __init__(
        self,
        name: str,
        envs: Sequence[Any],
        first_lane: int = 0,
        *,
        ignore_obs: Sequence[str] = (),
        mask: str | None = None,
        masks: bool = False,
    ) -> None:
        self._envs = [env if is_current(env) else OlderEnv(env) for env in envs]
        spaces = spaces_of(envs[0].observation_space, envs[0].action_space, stack_of(envs[0]), ignore_obs)
        self.spaces = with_mask(spaces, mask)
        self.num_lanes = len(envs)
        self.restorable = all(env.seeded for env in self._envs if isinstance(env, OlderEnv))
        self._lane_names = [f"lane {first_lane + lane} of {name}" for lane in range(len(envs))]
        self.paths = field_paths(envs[0].observation_space)
        rows = ObservationRows(self.spaces, self.paths, self._lane_names)
        self._obs, self._stores = rows.arrays, rows.stores
        self._masks: Masks | None = None
        if mask is not None:
            self._masks = Masks(self.spaces, self._lane_names)
            self._obs[mask] = self._masks.rows
        self.first_info: Any = None
        self._unmasked = masks and mask is None and bool(self.spaces.action.choices)
        self._cut = cutter(self.spaces.action, self.num_lanes)
        self._reward = np.zeros(self.num_lanes, np.float32)
        # A memoryview stores any Python or numpy number in 30 ns and refuses None. The array takes 120 ns, and stores
        # None as NaN.
        self._reward_cells = self._reward.data
        self._infos: list[Any] | None = None
        self._last_infos: LastInfos | None = None
        self._take: Callable[[Any, Any, bool], object] | None = None
        self._lanes = [self._stepped(lane) for lane in range(self.num_lanes)]
        self._result = StepResult(
            obs=self._obs,
            reward=self._reward,
            terminated=np.zeros(self.num_lanes, np.bool_),
            truncated=np.zeros(self.num_lanes, np.bool_),
            reset=np.zeros(self.num_lanes, np.bool_),
            final_obs={name: np.zeros_like(values) for name, values in self._obs.items()},
        )
        self._terminated_cells, self._truncated_cells = self._result.terminated.data, self._result.truncated.data
        self._ended: list[int] = []
        self._sign = memoryview(bytearray(8)).cast("q")
        # The views are made once, because indexing an array makes a new one for 100 ns each time.
        self._final_rows = [
            [(self._result.final_obs[name][lane, ...], values[lane, ...]) for name, values in self._obs.items()]
            for lane in range(self.num_lanes)
        ]

    def watch(self, sign: memoryview) -> None:
        """From now on, write into ``sign`` which lane is being stepped or reset."""
        self._sign = sign

    def keep_infos(self) -> Sequence[Any]:
        """From now on, keep each lane's latest info; see ``types.EnvSource``."""
        self._infos = [{} for _ in self._envs]
        self._lanes = [self._stepped(lane) for lane in range(self.num_lanes)]
        return self._infos

    def need_last_observations(self) -> None:
        """Does nothing: the last observation of an episode is always there."""

    def follow(self, metrics: Sequence[str]) -> Mapping[int, tuple[float, ...]]:
        """From now on, read these numbers in the last info of each episode; see ``types.EnvSource``."""
        self._last_infos = LastInfos(metrics, self._lane_names)
        return self._last_infos.ended

    def film(self, take: Callable[[Any, Any, bool], object]) -> None:
        """From now on, call ``take`` after each reset and step of a lane.

        Args:
            take: gets the environment, its latest observation, and whether its episode has ended with it.
        """
        self._take = take
        self._lanes = [self._stepped(lane) for lane in range(self.num_lanes)]

    def reset(self, seeds: Sequence[int]) -> Arrays:
        """Start an episode in every lane. ``seeds`` holds one seed a lane."""
        for lane, seed in enumerate(seeds):
            self._sign[0] = lane
            self._begin(lane, seed)
        return self._obs

    def step(self, action: Array, next_seeds: Callable[[int], int]) -> StepResult:
        """Step every lane. A lane whose episode ends begins its next one at once.

        Raises:
            BadDataError: a value has a wrong type or shape. The text names environment, lane and field.
            EnvError: the environment was made by ``gym``, with a checker that does not work.
        """
        while self._ended:
            lane = self._ended.pop()
            self._terminated_cells[lane] = self._truncated_cells[lane] = False
            if self._last_infos is not None:
                self._last_infos.begin_step()
        rewards, sign, unmasked = self._reward_cells, self._sign, self._unmasked
        lane = 0
        result: Any = (None, None, False, False, None)
        try:
            for (lane, step, store), lane_action in zip(self._lanes, self._cut(action), strict=True):
                sign[0] = lane
                result = step(lane_action)
                obs, reward, terminated, truncated, info = result
                store(obs)
                try:
                    rewards[lane] = reward
                except (TypeError, ValueError):
                    self._reward[lane] = as_number(reward, f"reward of {self._lane_names[lane]}")
                # Most infos are empty, which is seen in 10 ns. A dict is looked into in 30 ns; the call takes 220 ns.
                if info and unmasked and (info.__class__ is not dict or KEY in info):
                    self._refuse_late_mask(lane, info)
                if terminated or truncated:
                    ended = as_truth(terminated, f"terminated of {self._lane_names[lane]}")
                    cut = as_truth(truncated, f"truncated of {self._lane_names[lane]}")
                    # Before the reset, because an environment may use the info again.
                    if self._last_infos is not None:
                        self._last_infos.take(lane, info)
                    self._end(lane, ended, cut, next_seeds(lane))
        except Exception as error:
            self._explain(error, lane, result)
            raise
        return self._result

    def begin(self, lane: int, seed: int) -> Arrays:
        """Begin an episode in one lane; see ``types.EnvSource``."""
        self._begin(lane, seed)
        return self._obs

    def replay(self, actions: Mapping[int, Array]) -> Iterator[Replayed]:
        """Restore episodes by their actions, one lane after the other; see ``types.EnvSource``."""
        for lane, taken in actions.items():
            _, step, store = self._lanes[lane]
            replayed = Replayed((lane,), self._obs, self._reward)
            for one in taken:
                given = self._cut(np.broadcast_to(one, (self.num_lanes, *one.shape)))
                obs, reward, terminated, truncated, _ = step(list(given)[lane])
                store(obs)
                # As ``step`` stores it: in float32, so that the episode's return is restored bit by bit, and from any
                # form of one number.
                self._reward[lane] = np.reshape(reward, ())
                yield replayed
                if terminated or truncated:
                    break

    def snapshot(self, lane: int) -> bytes:
        """The lane's environment with its wrappers, and its latest observation; see ``types.EnvSource``."""
        from penstock.envs.snapshots import capture  # noqa: PLC0415  # only long episodes need it

        obs = {name: values[lane].copy() for name, values in self._obs.items()}
        return capture({"env": self._envs[lane], "obs": obs})

    def apply_snapshot(self, lane: int, base: bytes) -> Arrays:
        """Apply a snapshot to the lane's environment; see ``types.EnvSource``."""
        from penstock.envs.snapshots import apply  # noqa: PLC0415  # only long episodes need it

        found = apply(base, {"env": self._envs[lane], "obs": {}})["obs"]
        for name, values in self._obs.items():
            values[lane] = found[name]
        return self._obs

    def close(self) -> None:
        """Close the environments."""
        envs, self._envs = self._envs, []
        with contextlib.ExitStack() as stack:  # closes all others even if closing one fails
            for env in envs:
                stack.callback(env.close)

    def _stepped(self, lane: int) -> tuple[int, Callable[[Any], Any], Store]:
        """A lane, the function that steps its environment, and the function that stores its observation."""
        step: Callable[[Any], Any] = self._envs[lane].step
        if self._masks is not None:
            step = _masking(step, self._masks, lane)
        if self._take is not None:
            step = _filming(step, self._envs[lane], self._take)
        return lane, step if self._infos is None else _keeping(step, self._infos, lane), self._stores[lane]

    def _end(self, lane: int, terminated: bool, truncated: bool, seed: int) -> None:
        self._ended.append(lane)
        self._terminated_cells[lane] = terminated
        self._truncated_cells[lane] = truncated
        for final, last in self._final_rows[lane]:
            final[...] = last
        self._begin(lane, seed)

    def _begin(self, lane: int, seed: int) -> None:
        result = self._envs[lane].reset(seed=seed)
        values = reset_values(result)
        if values is not result and not isinstance(self._envs[lane], OlderEnv):
            # An environment of the older API that only imports the new package. Its step is then likely the older one.
            self._envs[lane] = OlderEnv(self._envs[lane])
            self._lanes[lane] = self._stepped(lane)
        self._stores[lane](values[0])
        self.first_info = values[1]
        if self._take is not None:
            self._take(self._envs[lane], values[0], False)
        if self._masks is not None:
            self._masks.take(lane, *values, goes_on=True)
        elif self._unmasked:
            self._refuse_late_mask(lane, values[1])

    def _refuse_late_mask(self, lane: int, info: Any) -> None:
        """Raise BadDataError if an info has a mask."""
        if isinstance(info, Mapping) and info.get(KEY) is not None:
            raise late_mask(self._lane_names[lane])

    def _explain(self, error: Exception, lane: int, result: Any) -> None:
        """Raise BadDataError if the values of ``step`` could not be unpacked; otherwise add the lane to the error.

        Raises EnvError if the checker of ``gym`` has failed.
        """
        name = self._lane_names[lane]
        refuse_checker(name, error)
        unpacking = error.__traceback__ is None or error.__traceback__.tb_next is None
        # This error needs no traceback, because its text says what the environment returned.
        if unpacking and (not isinstance(result, tuple) or len(result) != 5):
            raise BadDataError(
                f"step of {name} returned {one_line(result)}; expected five values: "
                "observation, reward, terminated, truncated, info"
            ) from None
        for field, value in zip(("terminated", "truncated"), result[2:4], strict=True):
            if np.size(value) != 1:
                cause = None if unpacking else error
                raise BadDataError(f"{field} of {name} is {one_line(value)}, neither true nor false") from cause
        if not isinstance(error, BadDataError):
            error.add_note(f"in {name}")


def _masking(step: Callable[[Any], Any], masks: Masks, lane: int) -> Callable[[Any], Any]:
    """``step`` that also takes the lane's action mask."""

    def step_and_take(action: Any) -> Any:
        result = step(action)
        # The caller refuses any other result.
        if isinstance(result, tuple) and len(result) == 5:
            obs, _, terminated, truncated, info = result
            masks.take(lane, obs, info, goes_on=not (terminated or truncated))
        return result

    return step_and_take


def _filming(step: Callable[[Any], Any], env: Any, take: Callable[[Any, Any, bool], object]) -> Callable[[Any], Any]:
    """The step of an environment, with a call of ``take`` after it."""

    def filmed(action: Any) -> Any:
        result = step(action)
        # Anything else is refused by the caller.
        if isinstance(result, tuple) and len(result) == 5:
            take(env, result[0], bool(result[2] or result[3]))
        return result

    return filmed


def _keeping(step: Callable[[Any], Any], infos: list[Any], lane: int) -> Callable[[Any], Any]:
    """``step`` that also puts its last value, the info, into ``infos``."""

    def step_and_keep(action: Any) -> Any:
        result = step(action)
        if isinstance(result, tuple):
            infos[lane] = result[-1]
        return result

    return step_and_keep
