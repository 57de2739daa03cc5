"""EnvNode: steps its lanes with the actions of a policy port and writes each rollout once, in place.

It does not know where the policy runs, which algorithm learns, or which nodes wait for it.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from penstock.envs.bad_numbers import BadNumber, earliest, spoilt_lanes
from penstock.envs.sources import display_name
from penstock.errors import BadDataError, PenstockError
from penstock.kernels.rollout import rollout_writer
from penstock.memory.action_log import RolloutLog
from penstock.nodes.contract import STEP_LIMIT_S, LaneStart, Ports
from penstock.nodes.env.lanes import Lanes
from penstock.nodes.env.memory import LaneMemory
from penstock.nodes.env.metrics import EpisodeMetrics
from penstock.nodes.env.opened import open_lanes
from penstock.nodes.env.rewards import OwnRewards
from penstock.nodes.env.settings import EnvSettings
from penstock.nodes.env.snapshots import LaneSnapshots
from penstock.nodes.env.takeover import lane_starts, note_earlier_rows
from penstock.nodes.ports import PolicyPort, StreamWriter
from penstock.types import Arrays, EnvSource, StepResult

__all__ = ["EnvNode"]

ANNOUNCED_S = 1.0
"""Seconds of restoring after which the rest of it is announced as work with a limit of its own."""

BOUND_SLOTS = 1024
"""So many slots of a table stay bound. Binding a slot takes as long as some steps; a bound slot takes some KB."""

DONE = object()
"""What ``next`` returns for work that has ended."""

SKIP_LIMIT = 100
"""Spoilt rollouts in a row after which the next one is an error."""


class _Slot(NamedTuple):
    """A slot of the stream, and the ports that are bound to its arrays."""

    arrays: Arrays
    handle: int
    """For questions to the policy."""
    store: Callable[[int, StepResult], Sequence[int]]
    """Writes a vector step. Returns the lanes that begin an episode with it."""
    log: RolloutLog


class EnvNode:
    """Steps lanes ``first_lane .. first_lane + lanes - 1``."""

    def __init__(self, settings: EnvSettings) -> None:
        self._settings = settings
        self._slots: dict[int, _Slot] = {}
        self._work: Iterator[None] | None = None
        self._deadline = 0.0
        self._skipped = 0
        self._source: EnvSource | None = None
        self._rewards: OwnRewards | None = None
        self._metrics: EpisodeMetrics | None = None

    def open(self, ports: Ports) -> None:
        """Make the environments and start an episode in each lane."""
        settings = self._settings
        self._ports = ports
        self._stream: StreamWriter = ports.stream_writer("rollouts")
        self._policy: PolicyPort = ports.policy("act", settings.first_lane, settings.lanes)
        self._log = ports.action_log(f"actions.{ports.name}")
        self._fields = tuple(name for name, _ in settings.spaces.obs)
        note_earlier_rows(settings, ports)
        with ports.busy("open environment", settings.work_limit_s):
            opened = open_lanes(settings, self._policy.stacks)
            self._source = opened.source
            if opened.rewarded is not None:
                self._rewards = OwnRewards(opened.rewarded, settings.num_steps)
            if settings.episode_metrics:
                self._metrics = EpisodeMetrics(self._source, settings.episode_metrics)
        self._source.watch(ports.sign())
        starts = lane_starts(settings, ports, self._stream, self._log, restorable=self._source.restorable)
        self._rollout, self._step = starts[0].rollout, starts[0].step
        self._lanes = Lanes(settings, self._source, self._log, starts)
        self._snapshots = LaneSnapshots(settings, ports, self._log, opened, self._lanes, stacks=self._policy.stacks)
        self._memory = LaneMemory(self._policy.carry, settings.lanes)
        self._source.take_version(self._rollout)
        self._lanes.reset()
        self._restore(starts)
        self._obs = {name: values.copy() for name, values in self._lanes.obs.items()}

    def ready(self) -> bool:
        """True if the rollout under way can go on, or a new one may begin: a slot is free, the policy new enough."""
        if self._work is not None:
            return self._policy.answered()
        return not self._ports.stopping() and self._stream.free() > 0 and self._policy.fresh(self._rollout)

    def step(self) -> None:
        """Go on with the rollout until it is complete, must wait for the policy, or the time is up."""
        self._deadline = time.monotonic() + STEP_LIMIT_S
        if self._work is None:
            index = self._stream.claim(self._rollout * self._settings.num_workers + self._settings.worker)
            if index is None:
                return
            self._work = self._collect_until_pushed(index)
        if next(self._work, DONE) is DONE:
            self._work = None

    def close(self) -> None:
        """Close the environments."""
        if self._source is not None:
            # The node's work is saved by now. A simulator that cannot close is no failure of the run.
            with contextlib.suppress(Exception):
                self._source.close()

    def _restore(self, starts: Sequence[LaneStart]) -> None:
        """Bring the lanes back to where they were in an earlier life."""
        settings, ports = self._settings, self._ports
        if all(start.position is None for start in starts):
            return
        work, over = self._lanes.restore(starts), False
        while not over:
            # Announced anew while it goes on: how long all of it takes grows with the lanes and their episodes.
            with ports.busy("restore episodes", settings.work_limit_s):
                until = time.monotonic() + ANNOUNCED_S
                # False if the time is over before the work is.
                over = all(time.monotonic() < until for _ in work)
        for lane, start in enumerate(starts):
            if start.position is None:
                continue
            if not self._lanes.continues[lane]:
                ports.count("not_restored")
            elif start.position.steps:
                self._memory.set(lane, start.carry)
                if start.base is not None:
                    self._snapshots.went_on_from(lane, start.base)

    def _bound(self, index: int, same_step: bool) -> "_Slot":
        """A slot with all that is bound to its arrays. At most ``BOUND_SLOTS`` stay bound."""
        if index not in self._slots:
            while len(self._slots) >= BOUND_SLOTS:
                self._policy.unbind(self._slots.pop(next(iter(self._slots))).handle)
            slot, own = self._stream.slot(index), self._rewards
            writer = rollout_writer(
                slot if own is None else own.beside(slot),
                self._fields,
                same_step=same_step,
                running_return=self._lanes.returns,
                running_length=self._lanes.lengths,
            )
            store = writer.store if own is None else own.storing(slot, writer.store)
            if self._metrics is not None:
                store = self._metrics.storing(slot, store)
            self._slots[index] = _Slot(slot, self._policy.bind(slot), store, self._log.bind(slot["action"], slot))
        return self._slots[index]

    def _collect_until_pushed(self, index: int) -> Iterator[None]:
        """Collect one rollout, as a span of the run's trace. Skipped rollouts are collected anew."""
        with self._ports.span("rollout"):
            while not (yield from self._collect(index)):
                pass

    def _collect(self, index: int) -> Generator[None, None, bool]:
        """Fill a slot with a rollout and push it. Yields when it must wait or return. False if it was skipped."""
        source, policy = self._source, self._policy
        if source is None:
            raise PenstockError("collecting before the environment is open")
        slot, handle, store, log = self._bound(index, source.same_step)
        num_steps, renew_every = self._settings.num_steps, self._settings.renew_every
        self._begin(slot)
        # Looked up once: finding a method costs 30 ns, and a vector step uses six.
        step, next_seed, ask, answered = source.step, self._lanes.next_seed, policy.ask, policy.answered
        append, now = log.append, time.monotonic
        remember = self._memory.stored if self._memory.carry else None
        for t in range(num_steps):
            if not t % renew_every:
                policy.refresh()
                slot["policy_version"][t:num_steps] = policy.version
                # In lock step both are the same, save for a policy in another process, whose version comes with its
                # first answer.
                source.take_version(max(self._rollout, policy.version))
            ask(handle, t, self._step)
            while not answered():
                yield
            try:
                begun = store(t, step(policy.environment_action, next_seed))
            except BadDataError as error:
                where = f"{self._ports.name}: at step {self._step} of the lane (counted from 0): {error}"
                raise BadDataError(where) from error.__cause__
            append(t)
            self._step += 1
            for lane in begun:
                # A same-step source has counted the episode already, when it asked for its seed.
                self._lanes.episodes[lane] += not source.same_step
                log.begin_episode(lane, self._lanes.episodes[lane], t + 1)
            if remember is not None:
                remember(slot, t, begun)
            if now() > self._deadline:
                yield
        for name in self._fields:
            self._obs[name][...] = slot[name][num_steps]
        bad = self._bad_number(slot)
        if bad is not None and self._settings.bad_numbers == "stop":
            raise self._bad_data(bad)
        if bad is not None:
            self._skip(source, slot, bad)
            return False
        yield from self._bootstrap(slot)
        self._finish(slot, index)
        return True

    def _begin(self, slot: Arrays) -> None:
        """Write what is known before the first step."""
        for name, values in self._obs.items():
            slot[name][0] = values
        slot["final_count"][...] = 0
        slot["episode_count"][...] = 0
        self._memory.begin(slot)
        if "continues" in slot:
            slot["continues"][...] = self._lanes.continues
            slot["steps_before"][...] = self._lanes.lengths

    def _bootstrap(self, slot: Arrays) -> Iterator[None]:
        """If rows have values: ask for those of row T, and of the last observations of truncated episodes."""
        if "value" not in slot:
            return
        num_steps, policy = self._settings.num_steps, self._policy
        given = {name: slot[name][num_steps] for name in self._fields}
        policy.ask_value({**given, **self._memory.at(slot, num_steps)}, slot["value"][num_steps])
        while not policy.answered():
            yield
        count = int(slot["final_count"])
        if count:
            given = {name: slot[f"final.{name}"][:count] for name in self._fields}
            policy.ask_value({**given, **self._memory.of_finals(slot, count)}, slot["final_value"][:count])
            while not policy.answered():
                yield

    def _finish(self, slot: Arrays, index: int) -> None:
        """Complete the rollout with its numbers and positions, and push it."""
        settings = self._settings
        slot["first_lane"][...] = settings.first_lane
        slot["rollout"][...] = self._rollout
        self._log.positions(slot["lane_position"])
        self._memory.end(slot)
        # The counts are in the rollout itself. So they are known exactly if the rollout was pushed before a death.
        self._lanes.collected += slot["valid"][: settings.num_steps].sum(axis=0)
        slot["lane_collected"][...] = self._lanes.collected
        slot["lane_spoilt"][...] = self._lanes.spoilt
        self._ports.note("collected", int((self._lanes.collected - self._lanes.spoilt).sum()))
        # Before the push: a learner may ask at once for what restores the lanes.
        self._snapshots.after_rollout(self._step)
        self._stream.push(index)
        self._lanes.continues[...] = True
        self._rollout += 1
        self._skipped = 0

    def _bad_number(self, slot: Arrays) -> BadNumber | None:
        """The first NaN or infinity of a rollout: from the environment, otherwise from the user's own reward."""
        num_steps, own = self._settings.num_steps, self._rewards
        if own is None:
            return earliest(slot, self._fields, num_steps)
        return earliest(own.beside(slot), self._fields, num_steps) or own.bad(slot, num_steps)

    def _bad_data(self, bad: BadNumber) -> BadDataError:
        settings = self._settings
        return BadDataError(
            f"{self._ports.name}: {bad.field} of lane {settings.first_lane + bad.lane} of {display_name(settings.env)} "
            f"is {bad.value} at step {self._step - settings.num_steps + bad.t} of the lane, counted from 0"
        )

    def _skip(self, source: EnvSource, slot: Arrays, bad: BadNumber) -> None:
        """Drop the rollout that was just collected. Each lane with a bad number begins a new episode.

        Raises:
            BadDataError: the source cannot reset a single lane, or too many rollouts in a row were dropped.
        """
        num_steps = self._settings.num_steps
        self._skipped += 1
        if self._skipped > SKIP_LIMIT:
            raise BadDataError(f"{self._bad_data(bad)}; {SKIP_LIMIT} rollouts in a row were skipped before this one")
        for lane in spoilt_lanes(slot, self._fields, num_steps):
            self._lanes.episodes[lane] += 1
            obs = source.begin(lane, self._lanes.seed(lane))
            if obs is None:
                raise BadDataError(
                    f"{self._bad_data(bad)}; it cannot be skipped: this source cannot reset a single lane"
                )
            self._lanes.begin_episode(lane, obs)
            self._memory.forget(lane)
            for name in self._fields:
                self._obs[name][lane] = obs[name][lane]
        # The rollout after the last pushed one was dropped, so the next one does not continue it.
        self._lanes.continues[...] = False
        # The next pushed rollout carries these counts.
        rows = slot["valid"][:num_steps].sum(axis=0)
        self._lanes.collected += rows
        self._lanes.spoilt += rows
        self._ports.count("skipped")
        self._rollout += 1
