"""Takes snapshots of lanes whose episodes are long, at the ends of rollouts.

Does not restore lanes; `Lanes.restore` does.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from penstock.errors import ResourceError, SnapshotError
from penstock.memory.snapshots import Snapshot
from penstock.nodes.contract import LaneStart, Ports
from penstock.nodes.env.lanes import Lanes
from penstock.nodes.env.opened import Opened
from penstock.nodes.env.settings import EnvSettings
from penstock.nodes.env.trial import Trial, repeats
from penstock.nodes.ports import ActionLogPort
from penstock.types import Arrays, ArraySpec

__all__ = ["LaneSnapshots"]


class _Candidate(NamedTuple):
    """A snapshot that will be tried."""

    lane: int
    snapshot: Snapshot


class LaneSnapshots:
    """The snapshots of the lanes of one node.

    Whether an environment can be restored by a snapshot is found out by trying:

    1. Take a snapshot of a lane whose first one will be due soon.
    2. At the end of the next rollout, apply it to another environment, and play the rollout's actions there (`trial`).
    3. If observations and rewards are the same, the environment can.

    So a run without long episodes never tries, and no lane is touched by the trial.

    Args:
        settings: of the node.
        ports: of the node.
        log: keeps the snapshots.
        opened: the source of the node's lanes.
        lanes: the lanes.
        stacks: of the policy port.
        try_out: as `repeats`.
    """

    def __init__(
        self,
        settings: EnvSettings,
        ports: Ports,
        log: ActionLogPort,
        opened: Opened,
        lanes: Lanes,
        *,
        stacks: Arrays,
        try_out: Callable[[Trial, float], bool] = repeats,
    ) -> None:
        self._settings, self._ports, self._log = settings, ports, log
        self._opened, self._lanes, self._try_out = opened, lanes, try_out
        self._stacks = tuple(ArraySpec(name, array.shape[1:], array.dtype.name) for name, array in stacks.items())
        self._fits: bool | None = None
        """The environment can be restored by a snapshot; ``None``: not tried yet."""
        self._candidate: _Candidate | None = None
        self._taken = [(-1, 0)] * settings.lanes
        """For each lane: the episode of its latest snapshot, and the episode's length then."""
        self._look_at: float = 0
        """Number of the lanes' step before which nothing can be due."""
        if not log.snapshot_bytes or not opened.source.restorable:
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
        if self._candidate is not None:
            self._judge(self._candidate)
        left = [self._log.snapshot_every - self._since(lane) for lane in range(self._settings.lanes)]
        if self._fits is None and min(left) <= self._settings.num_steps:
            self._propose(left.index(min(left)))
        elif self._fits:
            for lane in range(self._settings.lanes):
                if left[lane] <= 0:
                    self._take(lane)
                    left[lane] = self._log.snapshot_every
        if self._fits is not False:
            early = 0 if self._fits else self._settings.num_steps
            self._look_at = step + (1 if self._candidate is not None else max(1, min(left) - early))

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

    def _propose(self, lane: int) -> None:
        """Take a snapshot that will be tried at the end of the next rollout."""
        try:
            found = self._snapshot(lane)
        except SnapshotError:
            found = None
        if found is None or len(found.content) > self._log.snapshot_bytes:
            self._give_up()
        elif found.position.steps:
            self._candidate = _Candidate(lane, found)

    def _judge(self, candidate: _Candidate) -> None:
        """Try a snapshot, and note whether it fits. If its episode has ended by now, a later snapshot will be tried."""
        self._candidate = None
        lane, base = candidate
        here = self._log.position(lane)
        if base.position[:2] != here[:2]:
            return
        actions = self._log.since(lane, base.position, here)
        if actions is None:
            # The log does not even hold one rollout.
            self._give_up()
            return
        trial = Trial(
            replace(self._settings, first_lane=self._settings.first_lane + lane, lanes=1, starts=()),
            LaneStart(here.episode, position=here, actions=actions, base=base),
            self._stacks,
            self._log.snapshot_bytes,
            float(self._lanes.returns[lane]),
            self._opened.own_return(lane),
        )
        limit_s = self._settings.work_limit_s
        with self._ports.busy("try a snapshot", 2 * limit_s):
            self._fits = self._try_out(trial, limit_s)
        if not self._fits:
            self._give_up()

    def _give_up(self) -> None:
        self._fits, self._look_at = False, math.inf
