"""Lane: writes what one session experiences into rollouts. It fills the same slots that an `EnvNode` fills.

A lane resets in a step of its own, as the lanes of some sources do: after the end of an episode, one row holds its last
observation and is not valid. Knows no sockets and no agents.
"""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.envs.last_infos import LastInfos
from penstock.envs.names import display_name
from penstock.errors import PenstockError
from penstock.kernels.rollout import RolloutWriter, rollout_writer
from penstock.memory.action_log import RolloutLog
from penstock.metrics.episode_metrics import METRIC_FIELD
from penstock.nodes.contract import LaneStart, Ports
from penstock.nodes.env import EnvSettings
from penstock.nodes.env.memory import LaneMemory
from penstock.nodes.env.takeover import lane_starts, note_earlier_rows
from penstock.types import Array, Arrays, StepResult

__all__ = ["Lane", "RunEndedError"]

LOOK_S = 0.001
"""How often a lane that waits looks for a free slot, a new policy or an answer."""
BOUND_SLOTS = 64
"""Most slots of a table that stay bound for each lane."""


class RunEndedError(PenstockError):
    """The run ends, so no further row is taken."""


class _Slot:
    """A slot of the stream, and what is bound to its arrays."""

    __slots__ = ("arrays", "handle", "log", "writer")

    def __init__(self, arrays: Arrays, handle: int, writer: RolloutWriter, log: RolloutLog) -> None:
        self.arrays = arrays
        self.handle = handle
        self.writer = writer
        self.log = log


class Lane:
    """One lane.

    Calls come in this order: `begin` and `act`; for each further step `go_on` and `act`, or `go_on_at_once`; `end` or
    `cut_off`.

    Args:
        settings: of the lane, whose ``lanes`` is 1.
        ports: the ends of its edges.
    """

    def __init__(self, settings: EnvSettings, ports: Ports) -> None:
        self._settings = settings
        self._ports = ports
        self._stream = ports.stream_writer("rollouts")
        self._policy = ports.policy("act", settings.first_lane, 1)
        self._log = ports.action_log(f"actions.{ports.name}")
        self._fields = tuple(name for name, _ in settings.spaces.obs)
        note_earlier_rows(settings, ports)
        start: LaneStart = lane_starts(settings, ports, self._stream, self._log, restorable=False)[0]
        self._rollout, self._step = start.rollout, start.step
        self._episode = start.episode - 1
        self._collected, self._spoilt = start.collected, start.spoilt
        self._memory = LaneMemory(self._policy.carry, 1)
        self._return, self._length = np.zeros(1, np.float64), np.zeros(1, np.int64)
        lane_name = f"lane {settings.first_lane} of {display_name(settings.env)}"
        self._last_infos = LastInfos(settings.episode_metrics, (lane_name,))
        self._slots: dict[int, _Slot] = {}
        self._result = StepResult(
            obs={spec.name: np.zeros((1, *spec.shape), spec.dtype) for spec in settings.spaces.obs_specs()},
            reward=np.zeros(1, np.float32),
            terminated=np.zeros(1, np.bool_),
            truncated=np.zeros(1, np.bool_),
            reset=np.zeros(1, np.bool_),
            final_obs={},
        )
        self._slot: _Slot | None = None
        """The slot that is being filled."""
        self._index = -1
        self._t = 0
        """The row whose outcome comes next."""
        self._between = False
        """Row ``t`` holds the last observation of an episode that has ended."""

    async def begin(self, obs: Mapping[str, Array]) -> None:
        """An episode begins with this observation, field -> ``[1, ...]``.

        Raises:
            RunEndedError: the run ends.
        """
        self._episode += 1
        self._return[0], self._length[0] = 0.0, 0
        if self._between:
            self._between = False
            self._store(obs, 0.0, reset=True)
            await self._complete_if_full()
        elif self._slot is not None and self._t > 0:
            for name in self._fields:
                self._slot.arrays[name][self._t] = obs[name]
        elif self._slot is not None:
            self._write_first(self._slot, obs)
        if self._slot is None:
            await self._claim(obs, goes_on=False)
        self._log.begin_episode(0, self._episode, obs)

    async def act(self) -> Array:
        """Let the policy act on the latest observation: the action ``[1, ...]`` in the game's own units.

        Raises:
            RunEndedError: the run ends.
        """
        self._ask()
        await self._answered()
        return self._policy.environment_action

    async def go_on(self, obs: Mapping[str, Array], reward: float) -> None:
        """The action had this outcome, and the episode goes on.

        Raises:
            RunEndedError: the run ends.
        """
        self._store(obs, reward)
        await self._complete_if_full()
        if self._slot is None:
            await self._claim(obs, goes_on=True)

    def may_go_on_at_once(self) -> bool:
        """Whether `go_on_at_once` may be called: the rollout takes another row, and the policy answers at once."""
        has_room = self._slot is not None and self._t + 1 < self._settings.num_steps
        return has_room and self._policy.answers_at_once

    def go_on_at_once(self, obs: Mapping[str, Array], reward: float) -> Array:
        """`go_on` and `act` in one call that does not wait."""
        self._store(obs, reward)
        self._ask()
        return self._policy.environment_action

    async def end(self, obs: Mapping[str, Array], reward: float, info: object, *, terminated: bool) -> None:
        """The action had this outcome, and the episode ends; it was cut off if it is not ``terminated``.

        Args:
            obs: the last observation, field -> ``[1, ...]``.
            reward: of the action.
            info: a mapping with the episode metrics; ``None``: it has none.
            terminated: the episode has ended by itself.

        Raises:
            BadDataError: a metric is no number. Nothing has changed.
            RunEndedError: the run ends.
        """
        metrics = self._last_infos.numbers(0, info)
        self._store(obs, reward, terminated=terminated, truncated=not terminated)
        self._write_metrics(metrics)
        await self._complete_if_full()
        if self._slot is not None:
            # The value of the last observation, for the bootstrap.
            await self.act()
            self._between = True

    def cut_off(self) -> None:
        """The outcome of the last action will never come: the episode ends before it, as truncated.

        Row t holds the last observation, and its value.

        - The episode has rows in this rollout: row t - 1 was stored as if the episode went on, and is marked as
          truncated. Row t becomes the row between two episodes.
        - It has none: the next episode writes row t anew. The rows in earlier rollouts are followed by the value of the
          last observation, as in any unfinished rollout. Such an episode is not reported.
        """
        if self._slot is None:
            return
        slot = self._slot.arrays
        has_rows = self._t > 0 and bool(slot["valid"][self._t - 1, 0])
        if has_rows:
            slot["truncated"][self._t - 1, 0] = True
            count = int(slot["episode_count"])
            slot["episode_return"][count] = self._return[0]
            slot["episode_length"][count] = self._length[0]
            slot["episode_count"][...] = count + 1
            self._write_metrics(self._last_infos.numbers(0, None))
            self._between = True
        elif self._t == 0:
            self._memory.forget(0)
            if "continues" in slot:
                slot["continues"][...] = False
                slot["steps_before"][...] = 0

    def _store(
        self,
        obs: Mapping[str, Array],
        reward: float,
        *,
        terminated: bool = False,
        truncated: bool = False,
        reset: bool = False,
    ) -> None:
        """Write the outcome of row t."""
        slot, result = self._current(), self._result
        for name in self._fields:
            result.obs[name][...] = obs[name]
        result.reward[0], result.reset[0] = reward, reset
        result.terminated[0], result.truncated[0] = terminated, truncated
        t = self._t
        begun = slot.writer.store(t, result)
        slot.log.append(t)
        if self._memory.carry:
            self._memory.stored(slot.arrays, t, begun)
        self._step += 1
        self._t += 1

    def _write_metrics(self, numbers: Sequence[float]) -> None:
        """Write the metrics of the episode that was listed last."""
        slot = self._current().arrays
        for name, number in zip(self._settings.episode_metrics, numbers, strict=True):
            slot[f"{METRIC_FIELD}{name}"][int(slot["episode_count"]) - 1] = number

    async def _complete_if_full(self) -> None:
        """Complete and push a rollout that has all its rows."""
        if self._t == self._settings.num_steps:
            slot = self._current().arrays
            await self._bootstrap(slot)
            self._finish(slot)

    async def _claim(self, obs: Mapping[str, Array], *, goes_on: bool) -> None:
        """Wait for a free slot and for a policy that is new enough, and begin a rollout with this observation."""
        while True:
            if self._ports.stopping():
                raise RunEndedError("the run has ended")
            if self._stream.free() and self._policy.fresh(self._rollout):
                sequence = self._rollout * self._settings.num_workers + self._settings.worker
                index = self._stream.claim(sequence)
                if index is not None:
                    break
            await asyncio.sleep(LOOK_S)
        self._policy.refresh()
        slot = self._bound(index)
        self._slot, self._index, self._t = slot, index, 0
        arrays = slot.arrays
        arrays["policy_version"][: self._settings.num_steps] = self._policy.version
        arrays["final_count"][...] = 0
        arrays["episode_count"][...] = 0
        if not goes_on:
            self._memory.forget(0)
        self._write_first(slot, obs)
        if "continues" in arrays:
            arrays["continues"][...] = goes_on
            arrays["steps_before"][...] = self._length

    def _ask(self) -> None:
        """Ask about row t. As in `EnvNode`, a long rollout goes on with newer policies."""
        slot = self._current()
        if self._t and not self._t % self._settings.renew_every:
            self._policy.refresh()
            slot.arrays["policy_version"][self._t : self._settings.num_steps] = self._policy.version
        self._policy.ask(slot.handle, self._t, self._step)

    def _write_first(self, slot: _Slot, obs: Mapping[str, Array]) -> None:
        for name in self._fields:
            slot.arrays[name][0] = obs[name]
        self._memory.begin(slot.arrays)

    def _bound(self, index: int) -> _Slot:
        if index not in self._slots:
            while len(self._slots) >= BOUND_SLOTS:
                self._policy.unbind(self._slots.pop(next(iter(self._slots))).handle)
            arrays = self._stream.slot(index)
            writer = rollout_writer(
                arrays, self._fields, same_step=False, running_return=self._return, running_length=self._length
            )
            log = self._log.bind(arrays["action"], arrays)
            self._slots[index] = _Slot(arrays, self._policy.bind(arrays), writer, log)
        return self._slots[index]

    async def _bootstrap(self, slot: Arrays) -> None:
        """If rows have values: the value of the last state, so that an unfinished episode is learned from."""
        if "value" not in slot:
            return
        last = self._settings.num_steps
        given = {name: slot[name][last] for name in self._fields}
        self._policy.ask_value({**given, **self._memory.at(slot, last)}, slot["value"][last])
        await self._answered()

    def _finish(self, slot: Arrays) -> None:
        """Complete the rollout with its numbers and push it."""
        settings = self._settings
        slot["first_lane"][...] = settings.first_lane
        slot["rollout"][...] = self._rollout
        self._log.positions(slot["lane_position"])
        self._memory.end(slot)
        self._collected += int(slot["valid"][: settings.num_steps].sum())
        slot["lane_collected"][...] = self._collected
        slot["lane_spoilt"][...] = self._spoilt
        self._ports.note("collected", self._collected - self._spoilt)
        self._stream.push(self._index)
        self._rollout += 1
        self._slot = None

    async def _answered(self) -> None:
        while not self._policy.answered():
            if self._ports.stopping():
                raise RunEndedError("the run has ended")
            await asyncio.sleep(LOOK_S)

    def _current(self) -> _Slot:
        if self._slot is None:
            raise PenstockError("a lane was used outside of an episode")
        return self._slot
