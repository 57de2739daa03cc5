"""Finds out whether observations are stacks of frames, and reduces the observations of a source to their newest frame.

Does not put stacks together again; `nodes/` and `replay/` do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.envs.wrapped import WrappedSource
from penstock.errors import BadDataError, EnvError
from penstock.types import Array, Arrays, EnvSource, Replayed, Stack, StepResult

__all__ = ["NewestFrames", "newest_frames", "stack_of"]

METADATA = "frame_stack"
"""Key of an environment's metadata: ``metadata["frame_stack"] = {"frames": 4, "padding": "zero"}``."""
_STACKING = "FrameStackObservation"
_OBSERVE_THE_SAME = {"OrderEnforcing", "PassiveEnvChecker", "RecordEpisodeStatistics", "TimeLimit"}
"""Wrappers of Gymnasium that do not change observations."""


def stack_of(env: Any) -> Stack | None:
    """How an environment stacks frames, by its metadata or by Gymnasium's wrapper around it; ``None`` if it does not.

    Raises:
        EnvError: its metadata describe no possible stack.
    """
    metadata = getattr(env, "metadata", None)
    said = metadata.get(METADATA) if isinstance(metadata, Mapping) else None
    if said is not None:
        try:
            frames, padding = int(said["frames"]), said["padding"]
        except (TypeError, KeyError, ValueError):
            frames, padding = 0, ""
        if frames < 2 or padding not in {"first", "zero"}:
            form = '{"frames": 2 or more, "padding": "first" or "zero"}'
            raise EnvError(f'metadata["{METADATA}"] is {said!r}; expected {form}')
        return Stack(frames, padding)
    while type(env).__name__ in _OBSERVE_THE_SAME and hasattr(env, "env"):
        env = env.env
    if type(env).__name__ != _STACKING or env.stack_size < 2:
        return None
    padding = {"reset": "first", "zero": "zero"}.get(env.padding_type)
    # With any other padding, the frames before an episode's first one could not be restored.
    return None if padding is None else Stack(int(env.stack_size), padding)  # type: ignore[arg-type]


def newest_frames(source: EnvSource, stacks: Arrays, name: str, first_lane: int) -> EnvSource:
    """The source itself, or, if there are stacks, one that gives the newest frames only.

    Args:
        source: gives whole observations.
        stacks: field -> ``[B, frames, ...]``: arrays that receive the latest whole observations of these fields.
        name: of the environment, for error texts.
        first_lane: number of the first lane, for error texts.
    """
    return NewestFrames(source, stacks, name, first_lane) if stacks else source


class NewestFrames(WrappedSource):
    """See `newest_frames`. Checks each observation: one that is not the stack of its frames is refused."""

    def __init__(self, source: EnvSource, stacks: Arrays, name: str, first_lane: int) -> None:
        super().__init__(source, source.spaces.newest())
        self._stacks = stacks
        self._kinds: Mapping[str, Stack] = source.spaces.stacks()
        self._name = name
        self._first_lane = first_lane
        self._everyone = np.ones(source.num_lanes, np.bool_)
        self._seen: StepResult | None = None
        self._result: StepResult | None = None

    def reset(self, seeds: Sequence[int]) -> Arrays:
        """As the source."""
        obs = self._source.reset(seeds)
        self._take(obs, self._everyone)
        return self._newest(obs)

    def step(self, action: Array, next_seeds: Callable[[int], int]) -> StepResult:
        """As the source.

        Raises:
            BadDataError: an observation does not hold the frames of the observation before it.
        """
        result = self._source.step(action, next_seeds)
        if self.same_step:
            begun = result.terminated | result.truncated
            for lane in np.flatnonzero(result.truncated & ~result.terminated):
                for field, stack in self._stacks.items():
                    if not _equal(result.final_obs[field][lane, :-1], stack[lane, 1:]):
                        raise self._refuse(field, int(lane))
        else:
            begun = result.reset
        self._take(result.obs, begun)
        # If the source returns the same result object, its arrays are the same, too.
        if result is not self._seen or self._result is None:
            self._seen = result
            final_obs = self._newest(result.final_obs) if self.same_step else {}
            self._result = result._replace(obs=self._newest(result.obs), final_obs=final_obs)
        return self._result

    def begin(self, lane: int, seed: int) -> Arrays | None:
        """As the source."""
        obs = self._source.begin(lane, seed)
        return None if obs is None else self._begun(lane, obs)

    def replay(self, actions: Mapping[int, Array]) -> Iterator[Replayed]:
        """As the source."""
        for replayed in self._source.replay(actions):
            for lane in replayed.lanes:
                self._put(lane, replayed.obs)
            yield replayed._replace(obs=self._newest(replayed.obs))

    def snapshot(self, lane: int) -> bytes | None:
        """As the source, whose observations are whole."""
        return self._source.snapshot(lane)

    def apply_snapshot(self, lane: int, base: bytes) -> Arrays:
        """As the source."""
        return self._begun(lane, self._source.apply_snapshot(lane, base))

    def _begun(self, lane: int, obs: Arrays) -> Arrays:
        self._put(lane, obs)
        return self._newest(obs)

    def _put(self, lane: int, obs: Arrays) -> None:
        """Put the lane's latest whole observation into the stacks."""
        for field, stack in self._stacks.items():
            stack[lane] = obs[field][lane]

    def _newest(self, obs: Arrays) -> Arrays:
        return {field: values[:, -1] if field in self._stacks else values for field, values in obs.items()}

    def _take(self, obs: Arrays, begun: Array) -> None:
        """Keep whole observations. Those of lanes that have ``begun`` an episode must start with padding."""
        for field, stack in self._stacks.items():
            values = obs[field]
            if begun.any() or not np.array_equal(values[:, :-1], stack[:, 1:]):
                for lane in range(self.num_lanes):
                    before = _padding(values[lane], self._kinds[field]) if begun[lane] else stack[lane, 1:]
                    if not _equal(values[lane, :-1], before):
                        raise self._refuse(field, lane)
            stack[...] = values

    def _refuse(self, field: str, lane: int) -> BadDataError:
        kind = self._kinds[field]
        return BadDataError(
            f"{field} of lane {self._first_lane + lane} of {self._name} is not the stack of {kind.frames} frames, "
            f"padded by {kind.padding}, that the environment says it is"
        )


def _padding(observation: Array, kind: Stack) -> Array:
    """The padding before the first frame of an episode that begins with this observation, ``[frames - 1, ...]``."""
    first = observation[-1] if kind.padding == "first" else np.zeros_like(observation[-1])
    return np.broadcast_to(first, observation[:-1].shape)


def _equal(one: Array, other: Array) -> bool:
    # The node that stores rows looks for NaN.
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
