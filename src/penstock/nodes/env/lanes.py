"""Lanes: the state of each lane of an EnvNode: its episode, the return so far, the rows it has given."""

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.errors import SnapshotError
from penstock.kernels.actions import environment_array, to_environment
from penstock.memory.action_log import Position
from penstock.nodes.contract import LaneStart
from penstock.nodes.env.settings import EnvSettings
from penstock.nodes.ports import ActionLogPort
from penstock.seeding import episode_seed
from penstock.types import Array, Arrays, EnvSource

__all__ = ["Lanes"]


class Lanes:
    """The lanes of one node, by their number within it.

    Args:
        settings: of the node.
        source: steps the lanes.
        log: keeps their actions.
        starts: where each lane begins.

    Attributes:
        returns: ``[lanes]`` float64: return of each lane's episode so far.
        lengths: ``[lanes]`` int64: length of each lane's episode so far.
        episodes: number of each lane's episode.
        continues: ``[lanes]`` bool: the next rollout goes on where the previous one ended.
        collected: ``[lanes]`` int64: rows that each lane has given in the whole run.
        spoilt: ``[lanes]`` int64: how many of them were dropped.
        obs: the latest observations after a `reset` or `restore`, in the source's own arrays.
    """

    def __init__(
        self, settings: EnvSettings, source: EnvSource, log: ActionLogPort, starts: tuple[LaneStart, ...]
    ) -> None:
        self._settings = settings
        self._source = source
        self._log = log
        self.returns = np.zeros(settings.lanes, np.float64)
        self.lengths = np.zeros(settings.lanes, np.int64)
        self.continues = np.zeros(settings.lanes, bool)
        self.episodes = [start.episode for start in starts]
        self.collected = np.array([start.collected for start in starts])
        self.spoilt = np.array([start.spoilt for start in starts])
        self.obs: Arrays = {}

    def reset(self) -> None:
        """Begin an episode in every lane."""
        self.obs = self._source.reset([self.seed(lane) for lane in range(self._settings.lanes)])
        for lane in range(self._settings.lanes):
            self.begin_episode(lane, self.obs)

    def restore(self, starts: Sequence[LaneStart]) -> Iterator[None]:
        """Bring the lanes back to their positions in an earlier life, right after `reset`.

        Yields after each piece of work: a reset, or a step of the source. Afterwards ``continues`` is true for the
        lanes that observe there what they observed before. Others with a position begin their episode anew.
        """
        if not self._source.restorable:
            return
        actions: dict[int, Array] = {}
        for lane, start in enumerate(starts):
            if start.position is not None and self._go_to_base(lane, start):
                actions[lane] = np.empty(0) if start.actions is None else start.actions
            yield
        yield from self._replay(actions)
        for lane, start in enumerate(starts):
            here, there = self._log.position(lane), start.position
            if there is None:
                continue
            self.continues[lane] = lane in actions and (here.steps, here.hash) == (there.steps, there.hash)
            if not self.continues[lane]:
                self._begin_anew(lane, there)
            yield

    def begin_episode(self, lane: int, obs: Arrays) -> None:
        """Note that an episode has begun in ``lane`` with ``obs``. Its number is already in ``episodes``."""
        self.returns[lane] = 0.0
        self.lengths[lane] = 0
        self.continues[lane] = False
        self._log.begin_episode(lane, self.episodes[lane], obs)

    def _go_to_base(self, lane: int, start: LaneStart) -> bool:
        """Bring a lane, which was reset, to the snapshot from which its actions go on. False if that does not fit."""
        base = start.base
        if base is None:
            if start.position is not None:
                self._log.forget_snapshots(lane, start.position)
            return True
        try:
            self.obs = self._source.apply_snapshot(lane, base.content.tobytes())
        except SnapshotError:
            return False
        self._log.begin_at(lane, base)
        self.returns[lane] = base.episode_return
        self.lengths[lane] = base.position.steps
        return True

    def _replay(self, actions: dict[int, Array]) -> Iterator[None]:
        """Take lanes to where their actions, in the policy's units, lead."""
        space = self._settings.spaces.action
        given = {
            lane: to_environment(stored, space, environment_array(space, len(stored)))
            for lane, stored in actions.items()
        }
        left = {lane: iter(stored) for lane, stored in actions.items()}
        for replayed in self._source.replay(given):
            self.obs = replayed.obs
            for lane in replayed.lanes:
                self._log.append_lane(lane, next(left[lane]), replayed.obs)
                self.returns[lane] += replayed.reward[lane]
                self.lengths[lane] += 1
            yield

    def _begin_anew(self, lane: int, there: Position) -> None:
        """Begin the episode from its reset, because it cannot be restored."""
        self._log.forget_snapshots(lane, there._replace(steps=0))
        obs = self._source.begin(lane, self.seed(lane))
        if obs is not None:
            self.obs = obs
            self.begin_episode(lane, obs)

    def seed(self, lane: int) -> int:
        """The seed of the lane's episode."""
        return episode_seed(self._settings.seed, self._settings.first_lane + lane, self.episodes[lane])

    def next_seed(self, lane: int) -> int:
        """Count a lane's next episode. Returns its seed. Only same-step sources ask for it."""
        self.episodes[lane] += 1
        return self.seed(lane)
