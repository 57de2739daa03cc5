"""Lanes: the state of each lane of an EnvNode: its episode, the return so far, the rows it has given."""

import numpy as np

from penstock.errors import SnapshotError
from penstock.kernels.actions import environment_array, to_environment
from penstock.nodes.contract import LaneStart
from penstock.nodes.env.settings import EnvSettings
from penstock.nodes.ports import ActionLogPort
from penstock.seeding import episode_seed
from penstock.types import Arrays, EnvSource

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

    def reset(self) -> Arrays:
        """Begin an episode in every lane. Returns the first observations, in the source's own arrays."""
        obs = self._source.reset([self.seed(lane) for lane in range(self._settings.lanes)])
        for lane in range(self._settings.lanes):
            self.begin_episode(lane, obs)
        return obs

    def restore(self, lane: int, start: LaneStart) -> bool:
        """Bring a lane back to its position in an earlier life. If it observes something else there, it begins anew."""
        actions = np.empty(0) if start.actions is None else start.actions
        space = self._settings.spaces.action
        base = start.base
        given = to_environment(actions, space, environment_array(space, len(actions)))
        try:
            content = None if base is None else base.content.tobytes()
            replay = self._source.replay(lane, self.seed(lane), given, content)
            if replay is None:
                return False
            obs, _ = next(replay)
        except SnapshotError:
            self._begin_anew(lane, start)
            return False
        self.begin_episode(lane, obs)
        if base is not None:
            self._log.begin_at(lane, base)
            self.returns[lane] = base.episode_return
            self.lengths[lane] = base.position.steps
        elif start.position is not None:
            self._log.forget_snapshots(lane, start.position)
        for action, (obs, reward) in zip(actions, replay, strict=False):
            self._log.append_lane(lane, action, obs)
            self.returns[lane] += reward
            self.lengths[lane] += 1
        here, there = self._log.position(lane), start.position
        self.continues[lane] = there is not None and (here.steps, here.hash) == (there.steps, there.hash)
        if not self.continues[lane]:
            self._begin_anew(lane, start)
        return bool(self.continues[lane])

    def begin_episode(self, lane: int, obs: Arrays) -> None:
        """Note that an episode has begun in ``lane`` with ``obs``. Its number is already in ``episodes``."""
        self.returns[lane] = 0.0
        self.lengths[lane] = 0
        self.continues[lane] = False
        self._log.begin_episode(lane, self.episodes[lane], obs)

    def _begin_anew(self, lane: int, start: LaneStart) -> None:
        """Begin the episode from its reset, because it cannot be restored."""
        if start.position is not None:
            self._log.forget_snapshots(lane, start.position._replace(steps=0))
        for obs, _ in (
            self._source.replay(lane, self.seed(lane), environment_array(self._settings.spaces.action, 0)) or ()
        ):
            self.begin_episode(lane, obs)

    def seed(self, lane: int) -> int:
        """The seed of the lane's episode."""
        return episode_seed(self._settings.seed, self._settings.first_lane + lane, self.episodes[lane])

    def next_seed(self, lane: int) -> int:
        """Count a lane's next episode. Returns its seed. Only same-step sources ask for it."""
        self.episodes[lane] += 1
        return self.seed(lane)
