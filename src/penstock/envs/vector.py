"""The source for any ``gymnasium.vector.VectorEnv``: B lanes that one call steps together.

In the autoreset mode ``Disabled`` penstock resets lanes whose episode has ended. If the environment takes a seed for
each lane, the episodes of all lanes together are restored by seeds and actions (`joint_replay`). In ``NextStep`` and
``SameStep`` the environment resets lanes, from random streams of its own, so its episodes cannot be restored. The
modes: https://farama.org/Vector-Autoreset-Mode.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.envs.actions import batched
from penstock.envs.fields import field_paths, one_line
from penstock.envs.joint_replay import JointReplay
from penstock.envs.last_infos import LastInfos
from penstock.envs.masks import KEY, Masks, lane_of, late_mask, with_mask
from penstock.envs.rows import ObservationRows, cast, pick
from penstock.envs.spaces import spaces_of
from penstock.envs.stacks import stack_of
from penstock.envs.vector_seeds import SeedForm, reset_with_seeds, seed_form_of
from penstock.errors import BadDataError, EnvError, SnapshotError
from penstock.types import Array, Arrays, Box, Composite, Discrete, EnvSource, Replayed, StepResult

__all__ = ["VectorSource", "is_vector"]

_MODES = ("NextStep", "SameStep", "Disabled")
# NumPy makes each of its dtypes once, so `is` recognises them in 20 ns. `==` takes 90 ns, comparing names 700. If `is`
# fails for an equal dtype, `cast` accepts it.
_FLOAT32, _FLOAT64, _BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)


def is_vector(env: Any) -> bool:
    """True for an object with the attributes of a vector environment."""
    return hasattr(env, "num_envs") and hasattr(env, "single_observation_space")


class VectorSource(EnvSource):
    """Steps a vector environment.

    Args:
        name: of the environment, for error texts.
        env: the vector environment. The source owns and closes it.
        num_lanes: how many lanes it must have; rounded up to whole environments, if each has several agents.
        first_lane: number of the first one, for error texts.
        seeded: the environment was seeded when it was made, so its first reset gets no seed.
        ignore_obs: fields of the observation to leave out, as in ``used_fields``.
        mask: the field of the action mask, if one is used, as `mask_given` finds it.
        masks: true if the run uses a mask wherever there is one. Then without ``mask``, one that comes later in an info
            is refused.

    Attributes:
        agents: lanes of one environment: its agents.
        first_info: the action mask in the info with which the first lane began, if there is one.
        paths: as ``field_paths`` gives them.

    Raises:
        ConfigError: ``ignore_obs`` names an unknown field, or leaves none.
        EnvError: it is no vector environment, has another number of lanes or no known autoreset mode, or its metadata
            describe impossible observations.
        SpaceError: a space is not supported.
    """

    def __init__(
        self,
        name: str,
        env: Any,
        num_lanes: int,
        first_lane: int = 0,
        *,
        seeded: bool = False,
        ignore_obs: Sequence[str] = (),
        mask: str | None = None,
        masks: bool = False,
    ) -> None:
        if not is_vector(env):
            raise EnvError(f"{name} takes num_envs, but returned {one_line(env)}, which is no vector environment")
        self.agents: int = getattr(env, "agents_per_env", 1)
        num_lanes = -(-num_lanes // self.agents) * self.agents
        if env.num_envs != num_lanes:
            raise EnvError(f"{name} has {env.num_envs} lanes instead of {num_lanes}")
        self._env = env
        self._seeded = seeded
        self._mode = _autoreset_mode(name, env)
        spaces = spaces_of(env.single_observation_space, env.single_action_space, stack_of(env), ignore_obs)
        self.spaces = with_mask(spaces, mask)
        self.num_lanes = num_lanes
        self.same_step = self._mode != "NextStep"
        self._name = f"lanes {first_lane} to {first_lane + num_lanes - 1} of {name}"
        self.paths = field_paths(env.single_observation_space)
        self._lane_names = [f"lane {first_lane + lane} of {name}" for lane in range(num_lanes)]
        self._final = ObservationRows(self.spaces, self.paths, self._lane_names)
        self._masks = None if mask is None else Masks(self.spaces, self._lane_names)
        # Whether a mask in an info is refused: the lanes began without one.
        self._unmasked = masks and mask is None and bool(self.spaces.action.choices)
        self.first_info: Any = None
        specs = {spec.name: spec for spec in self.spaces.obs_specs()}
        # Of each observation field: name, path, space, shape and dtype.
        self._fields = [
            (field, self.paths[field], space, (num_lanes, *specs[field].shape), np.dtype(specs[field].dtype))
            for field, space in self.spaces.seen
        ]
        self._action_dtype = env.single_action_space.dtype
        self._shape = (num_lanes,)
        self._everyone = np.ones(num_lanes, np.bool_)
        self._reward = np.zeros(num_lanes, np.float32)
        # Lanes whose episode has ended with the last step, and lanes that the last step has reset (``NextStep``).
        self._ended = np.zeros(num_lanes, np.bool_)
        self._reset = np.zeros(num_lanes, np.bool_)
        # Lanes whose agent has ended before others of its environment, or has not come yet. Their steps are resets.
        self._absent: Array | None = getattr(env, "absent", None)
        # Where an environment keeps the infos of its lanes apart, because it does not put them together.
        self._lane_infos: Callable[[], Sequence[Any]] | None = getattr(env, "lane_infos", None)
        self._take_version: Callable[[int], None] | None = getattr(env, "take_version", None)
        self._last_infos: LastInfos | None = None
        # Whether somebody reads the last observation of an episode that has terminated.
        self._needs_last = False
        self._take: Callable[[Any, Any, bool], object] | None = None
        self._seed_form: SeedForm | None = None
        if self._mode == "Disabled":
            self._seed_form = seed_form_of(env, self._observed)
        self.restorable = self._seed_form is not None
        self._seeds: Sequence[int] = [0] * num_lanes

    def watch(self, sign: memoryview) -> None:
        """Does nothing, because one call steps all lanes."""

    def keep_infos(self) -> None:
        """None: one info holds all lanes, and each environment splits it in another way."""
        return

    def need_last_observations(self) -> None:
        """From now on, the last observation of each episode is read, also of one that has terminated.

        Raises:
            EnvError: the environment begins the next episode in the same step and never gives it.
        """
        if not getattr(self._env, "gives_final_obs", True):
            raise EnvError(f"{self._name} begin the next episode in the same step, and never give the last observation")
        self._needs_last = True

    def follow(self, metrics: Sequence[str]) -> Mapping[int, tuple[float, ...]]:
        """From now on, read these numbers in the last info of each episode; see ``types.EnvSource``."""
        self._last_infos = LastInfos(metrics, self._lane_names)
        return self._last_infos.ended

    def film(self, take: Callable[[Any, Any, bool], object]) -> None:
        """From now on, call ``take`` after each reset and step.

        Args:
            take: gets the environment, the latest observation of its first lane, and whether that lane's episode has
                ended with it. Never in mode ``SameStep``, where the next episode has begun already.
        """
        self._take = take

    def take_version(self, version: int) -> None:
        """Tell the environment, if it has opponents; see ``types.EnvSource``."""
        if self._take_version is not None:
            self._take_version(version)

    def reset(self, seeds: Sequence[int]) -> Arrays:
        """Start an episode in every lane. ``seeds`` holds one seed a lane."""
        self._ended[:] = False
        self._seeds = list(seeds)
        everyone = self._everyone
        if self._seed_form is not None:
            obs, info = self._env.reset(seed=self._seed_form(seeds, everyone))
        else:
            obs, info = self._env.reset() if self._seeded else reset_with_seeds(self._env, seeds)
        self.first_info = {KEY: lane_of(info[KEY], 0)} if KEY in info else {}
        if self._absent is not None:
            np.copyto(self._ended, self._absent)
        self._take_masks(obs, info, everyone, ~self._ended)
        self._film(obs, ended=False)
        return self._observed(obs)

    def step(self, action: Array, next_seeds: Callable[[int], int]) -> StepResult:
        """Step every lane.

        Raises:
            BadDataError: a value has a wrong type or shape. The text names environment and field.
        """
        obs, reward, terminated, truncated, infos = self._env.step(self._given(action))
        reward = self._rewards(reward)
        terminated = self._per_lane(terminated, _BOOL, "terminated")
        truncated = self._per_lane(truncated, _BOOL, "truncated")
        self._film(obs, ended=self._mode != "SameStep" and bool(terminated[0] or truncated[0]))
        if not self.same_step:
            # This step has reset the lanes that had ended before it.
            self._reset, self._ended = self._ended, self._reset
            np.logical_or(terminated, truncated, self._ended)
            if self._last_infos is not None:
                self._take_last_infos(self._last_infos, infos, self._ended & ~self._reset)
            if self._absent is not None:
                np.logical_or(self._ended, self._absent, self._ended)
            self._take_masks(obs, infos, self._everyone, ~self._ended)
            return StepResult(self._observed(obs), reward, terminated, truncated, self._reset, {})
        np.logical_or(terminated, truncated, self._ended)
        if self._last_infos is not None:
            self._take_last_infos(self._last_infos, infos, self._ended)
        self._take_masks(obs, infos, self._everyone, self._everyone if self._mode == "SameStep" else ~self._ended)
        if self._ended.any():
            seeds = {int(lane): next_seeds(int(lane)) for lane in np.flatnonzero(self._ended)}
            if self._mode == "SameStep":
                self._take_final(infos, self._ended if self._needs_last else truncated & ~terminated)
            else:
                # Copies, because the reset may write into the arrays that `step` returned.
                reward, terminated, truncated = reward.copy(), terminated.copy(), truncated.copy()
                obs = self._begin_next(self._observed(obs), seeds)
        return StepResult(self._observed(obs), reward, terminated, truncated, self._reset, self._final.arrays)

    def begin(self, lane: int, seed: int) -> Arrays | None:
        """Begin an episode in one lane; see ``types.EnvSource``. Only in mode ``Disabled``."""
        if self._mode != "Disabled":
            return None
        return self._observed(self._reset_lanes({lane: seed}))

    def replay(self, actions: Mapping[int, Array]) -> Iterator[Replayed]:
        """Restore episodes by their actions, all lanes together; see ``types.EnvSource`` and `joint_replay`."""
        joint = JointReplay(self.spaces, self.num_lanes, actions)
        for t in range(joint.steps):
            self._reset_for(joint, t)
            mask = None if self._masks is None else self._masks.rows
            obs, reward, terminated, truncated, infos = self._env.step(self._given(joint.action(t, mask)))
            # A new array, because the next reset may write into the arrays that `step` returned.
            ended = self._per_lane(terminated, _BOOL, "terminated") | self._per_lane(truncated, _BOOL, "truncated")
            self._take_masks(obs, infos, self._everyone, ~ended)
            yield Replayed(joint.playing(t), self._observed(obs), self._rewards(reward))
            joint.note_ends(t, ended)
        obs = self._reset_for(joint, joint.steps)
        if obs is not None:
            yield Replayed((), self._observed(obs), self._reward)

    def snapshot(self, lane: int) -> None:  # noqa: ARG002 - of the contract
        """None: the lanes of a vector environment have one state together."""
        return

    def apply_snapshot(self, lane: int, base: bytes) -> Arrays:  # noqa: ARG002 - of the contract
        """Raises SnapshotError: there are no snapshots."""
        raise SnapshotError(f"{self._name} is a vector environment, which has no snapshots")

    def close(self) -> None:
        """Close the environment."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _observed(self, obs: Any) -> Arrays:
        """Field -> ``[B, ...]``: the environment's own arrays if they fit their spaces, else converted ones."""
        arrays = {}
        for field, path, space, shape, dtype in self._fields:
            value = pick(obs, path, self._name) if path else obs
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                value = cast(value, Box(shape, dtype.name, (), ()), f"{field} of {self._name}")
            # The value will index a one-hot row, so it must be in range.
            if isinstance(space, Discrete) and (value.min() < space.start or value.max() >= space.start + space.n):
                raise BadDataError(
                    f"{field} of {self._name} is {one_line(value)}, outside its space "
                    f"{space.start} .. {space.start + space.n - 1}"
                )
            arrays[field] = value
        if self._masks is not None and self.spaces.mask is not None:
            arrays[self.spaces.mask] = self._masks.rows
        return arrays

    def _per_lane(self, values: Any, dtype: np.dtype[Any], field: str) -> Array:
        """Values ``[B]`` of that dtype; converted if necessary."""
        if type(values) is np.ndarray and values.dtype is dtype and values.shape == self._shape:
            return values
        return cast(values, Box(self._shape, dtype.name, (), ()), f"{field} of {self._name}")

    def _given(self, action: Array) -> Any:
        """Actions ``[B, ...]`` in the form that the environment takes: a copy, because it may keep them."""
        space = self.spaces.action
        return batched(space, action) if isinstance(space, Composite) else np.array(action, self._action_dtype)

    def _rewards(self, reward: Any) -> Array:
        """Rewards ``[B]`` float32: the environment's own array if it fits."""
        if type(reward) is not np.ndarray or reward.dtype is not _FLOAT32 or reward.shape != self._shape:
            self._reward[...] = self._per_lane(reward, _FLOAT64, "reward")
            return self._reward
        return reward

    def _begin_next(self, obs: Arrays, seeds: dict[int, int]) -> Any:
        """Keep the last observations of ended lanes, and begin their next episodes."""
        for field, values in obs.items():
            self._final.arrays[field][self._ended] = values[self._ended]
        first = self._reset_lanes(seeds)
        self._film(first, ended=False)
        return first

    def _reset_lanes(self, seeds: Mapping[int, int]) -> Any:
        """Reset some lanes, each with its seed. Returns the latest observations of all lanes, as the environment does.

        Only in mode ``Disabled``. An environment that takes no seeds is reset without.
        """
        chosen = np.zeros(self.num_lanes, np.bool_)
        chosen[list(seeds)] = True
        # A copy, because the environment may keep it.
        options = {"reset_mask": chosen.copy()}
        if self._seed_form is None:
            first, infos = self._env.reset(options=options)
        else:
            lane_seeds = [seeds.get(lane, 0) for lane in range(self.num_lanes)]
            first, infos = self._env.reset(seed=self._seed_form(lane_seeds, chosen), options=options)
        self._take_masks(first, infos, chosen, chosen)
        return first

    def _reset_for(self, joint: JointReplay, t: int) -> Any:
        """Make the resets of a joint replay before step t. Returns as `_reset_lanes`; ``None`` if there are none."""
        lanes = np.flatnonzero(joint.resets(t)).tolist()
        return self._reset_lanes({lane: self._seeds[lane] for lane in lanes}) if lanes else None

    def _film(self, obs: Any, *, ended: bool) -> None:
        if self._take is not None:
            self._take(self._env, lane_of(obs, 0), ended)

    def _take_masks(self, obs: Any, infos: Any, of: Array, goes_on: Array) -> None:
        if self._masks is not None:
            self._masks.take_all(obs, infos, of=of, goes_on=goes_on)
        elif self._unmasked and KEY in infos:
            given = np.asarray(infos.get(f"_{KEY}", of), bool)
            raise late_mask(self._lane_names[int(given.argmax())])

    def _take_last_infos(self, last: LastInfos, infos: Any, ended: Array) -> None:
        """Read the last infos of the lanes whose episodes have ended in this step."""
        last.begin_step()
        if not ended.any():
            return
        # In mode SameStep, ``infos`` itself is of the next episodes.
        given = infos.get("final_info") if self._mode == "SameStep" else infos
        if self._lane_infos is not None:
            given = self._lane_infos()
        for lane in np.flatnonzero(ended).tolist():
            if isinstance(given, Mapping):
                last.take_batch(lane, given)
            else:
                last.take(lane, lane_of(given, lane))

    def _take_final(self, infos: Any, wanted: Array) -> None:
        """Copy the last observations of ended lanes from the infos. Those of ``wanted`` lanes must be there."""
        for lane in map(int, np.flatnonzero(self._ended)):
            obs = lane_of(infos.get("final_obs"), lane)
            if obs is not None:
                self._final.stores[lane](obs)
                if self._masks is not None and self.spaces.mask is not None:
                    # Actions that are impossible there must not count among the best ones.
                    self._final.arrays[self.spaces.mask][lane] = self._masks.read(lane, obs, _final_info(infos, lane))
            elif wanted[lane]:
                raise BadDataError(
                    f"{self._name} resets in the same step, but its infos hold no final_obs of that lane"
                )


def _final_info(infos: Any, lane: int) -> Any:
    """The action mask in the last info of an ended lane, as an info has it."""
    whole = infos.get("final_info")
    return {KEY: lane_of(whole.get(KEY), lane)} if isinstance(whole, Mapping) else lane_of(whole, lane)


def _autoreset_mode(name: str, env: Any) -> str:
    """One of `_MODES`. Raises EnvError if the environment states none of them."""
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    value = getattr(mode, "value", mode)
    if value in _MODES:
        return str(value)
    stated = "does not state its autoreset mode" if mode is None else f"states the unknown autoreset mode {mode!r}"
    raise EnvError(
        f'{name} {stated}: set metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode ({", ".join(_MODES)})'
    )
