"""Takes snapshots of lanes whose episodes are long, at the ends of rollouts.

Does not restore lanes; `Lanes.restore` does.
"""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from penstock.envs.rewards import RewardedSource
from penstock.errors import ResourceError, SnapshotError
from penstock.memory.action_log import ActionLog
from penstock.memory.snapshots import Snapshot
from penstock.nodes.contract import LaneStart, Ports
from penstock.nodes.env.lanes import Lanes
from penstock.nodes.env.settings import EnvSettings
from penstock.nodes.ports import ActionLogPort
from penstock.types import EnvSource

__all__ = ["LaneSnapshots", "Opened"]

_LINE = 64
"""Bytes to which the memory of an action log is aligned."""


class Opened(NamedTuple):
    """The source of some lanes."""

    source: EnvSource
    rewarded: RewardedSource | None
    """The part of it that computes the user's own rewards."""


class _Trial(NamedTuple):
    """A snapshot that is to be tried."""

    lane: int
    snapshot: Snapshot


class LaneSnapshots:
    """The snapshots of the lanes of one node.

    Whether an environment can be restored by a snapshot is found out by trying:

    1. Take a snapshot of a lane whose first one will be due soon.
    2. At the end of the next rollout, lay it on another environment, and play the rollout's actions there.
    3. If observations and rewards are the same, the environment can.

    So a run without long episodes never tries, and no lane is touched by the trial.

    Args:
        settings: of the node.
        ports: of the node.
        log: keeps the snapshots.
        opened: the source of the node's lanes.
        lanes: the lanes.
        open_twin: makes the source of one more lane, the one with that number.
    """

    def __init__(
        self,
        settings: EnvSettings,
        ports: Ports,
        log: ActionLogPort,
        opened: Opened,
        lanes: Lanes,
        *,
        open_twin: Callable[[int], Opened],
    ) -> None:
        self._settings, self._ports, self._log = settings, ports, log
        self._opened, self._lanes, self._open_twin = opened, lanes, open_twin
        self._fits: bool | None = None
        """The environment can be restored by a snapshot; ``None``: not tried yet."""
        self._trial: _Trial | None = None
        self._taken = [(-1, 0)] * settings.lanes
        """For each lane: the episode of its latest snapshot, and the episode's length then."""
        self._look_at: float = 0
        possible = bool(log.snapshot_bytes) and opened.source.restorable
        if not possible:
            self._give_up()

    def went_on_from(self, lane: int, base: Snapshot) -> None:
        """Note that a lane was restored from a snapshot, so that the next one is due as if it had never stopped."""
        self._taken[lane] = base.position.episode, base.position.steps
        # A snapshot that is in use was tried by an earlier life.
        self._fits = True

    def after_rollout(self, step: int) -> None:
        """Take the snapshots that are due.

        Args:
            step: number of the lanes' next step.
        """
        if step < self._look_at:
            return
        if self._trial is not None:
            self._judge(self._trial)
        left = [self._log.snapshot_every - self._since(lane) for lane in range(self._settings.lanes)]
        if self._fits is None and min(left) <= self._settings.num_steps:
            self._try(left.index(min(left)))
        elif self._fits:
            for lane in range(self._settings.lanes):
                if left[lane] <= 0:
                    self._take(lane)
                    left[lane] = self._log.snapshot_every
        if self._fits is not False:
            early = 0 if self._fits else self._settings.num_steps
            self._look_at = step + (1 if self._trial is not None else max(1, min(left) - early))

    def _since(self, lane: int) -> int:
        """Steps of the lane's episode since its latest snapshot."""
        episode, length = self._taken[lane]
        return int(self._lanes.lengths[lane]) - (length if episode == self._lanes.episodes[lane] else 0)

    def _take(self, lane: int) -> None:
        # One that fails is not taken again at the next rollout: it may take long.
        self._taken[lane] = self._lanes.episodes[lane], int(self._lanes.lengths[lane])
        with contextlib.suppress(SnapshotError, ResourceError):
            found = self._snapshot(lane)
            if found is not None:
                self._log.add_snapshot(lane, found)

    def _snapshot(self, lane: int) -> Snapshot | None:
        content = self._opened.source.snapshot(lane)
        if content is None:
            return None
        position, so_far = self._log.position(lane), float(self._lanes.returns[lane])
        return Snapshot(position, so_far, np.frombuffer(content, np.uint8))

    def _try(self, lane: int) -> None:
        """Take a snapshot to be tried at the end of the next rollout."""
        try:
            found = self._snapshot(lane)
        except SnapshotError:
            found = None
        if found is None or len(found.content) > self._log.snapshot_bytes:
            self._give_up()
        elif found.position.steps:
            self._trial = _Trial(lane, found)

    def _judge(self, trial: _Trial) -> None:
        """Try a snapshot on another environment. If the episode has ended meanwhile, there will be another trial."""
        self._trial = None
        before, here = trial.snapshot.position, self._log.position(trial.lane)
        if before[:2] != here[:2]:
            return
        actions = self._log.since(trial.lane, before, here)
        if actions is None:
            # The log does not even hold one rollout.
            self._give_up()
            return
        start = LaneStart(here.episode, position=here, actions=actions, base=trial.snapshot)
        with self._ports.busy("try a snapshot", self._settings.open_limit_s), _same_random_numbers():
            # The run would go on without the trial. So it goes on if the trial fails, for whatever reason.
            try:
                self._fits = self._repeats(trial.lane, start)
            except Exception:  # noqa: BLE001
                self._fits = False
        if not self._fits:
            self._give_up()

    def _repeats(self, lane: int, start: LaneStart) -> bool:
        """True if a new environment goes the same way from the base of ``start`` on."""
        settings = replace(self._settings, first_lane=self._settings.first_lane + lane, lanes=1, starts=(start,))
        action, fields = settings.spaces.action_spec(), [name for name, _ in settings.spaces.obs]
        nbytes = ActionLog.required(1, action, 1, self._log.snapshot_bytes)
        memory = np.zeros(nbytes + _LINE, np.uint8)
        log = ActionLog(
            memory[-memory.ctypes.data % _LINE :], 1, action, fields, 1, snapshot_bytes=self._log.snapshot_bytes
        )
        twin = self._open_twin(lane)
        try:
            lanes = Lanes(settings, twin.source, log, (start,))
            return (
                lanes.restore(0, start)
                and lanes.returns[0] == self._lanes.returns[lane]
                and _own_return(twin, 0) == _own_return(self._opened, lane)
            )
        finally:
            with contextlib.suppress(Exception):
                twin.source.close()

    def _give_up(self) -> None:
        self._fits, self._look_at = False, math.inf


def _own_return(opened: Opened, lane: int) -> float:
    return 0.0 if opened.rewarded is None else opened.rewarded.own_return(lane)


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Keep the random numbers of the process: an environment that takes them shall not meet others after a trial."""
    numbers, states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(numbers)
        np.random.set_state(states)
