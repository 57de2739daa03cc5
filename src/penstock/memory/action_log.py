"""The action log: for each lane its last actions, and where in which episode it stands. Holds no observation.

With the episode's seed it restores an environment: reset it, give it ``content(lane, position)`` again, compare hashes.
In a new log ``begin_episode`` and ``append_lane`` follow along; in the log of a dead writer ``rewind`` to the episode's
start comes before, so that the same actions are written over themselves and stay readable.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.errors import ResourceError
from penstock.memory import _native
from penstock.types import Array, ArraySpec

__all__ = ["CAPACITY", "ActionLog", "Position", "RolloutLog"]

RolloutLog = _native.RolloutLog
"""An action log and the arrays of one rollout. See `ActionLog.bind`."""

CAPACITY = 10_000
"""Actions that a lane's ring holds: a longer episode is not restorable."""


class Position(NamedTuple):
    """Where a lane stands; four int64, so an array of positions is ``[lanes, 4]``."""

    episode: int
    """Number of the episode."""
    first_step: int
    """Number of its first action among all of the lane's actions."""
    steps: int
    """Actions since its reset."""
    hash: int
    """Rolling hash of its observations, the first included."""


class ActionLog:
    """Actions of lanes that are stepped together; one writer.

    Attributes:
        lanes: number of lanes.
        capacity: actions a lane holds.
    """

    def __init__(
        self,
        bytes: Array,  # noqa: A002
        lanes: int,
        action: ArraySpec,
        fields: Sequence[str],
        capacity: int = CAPACITY,
    ) -> None:
        """Attach to ``required(lanes, action, capacity)`` bytes, uint8, aligned to 64, that were zero at first.

        Args:
            bytes: the memory.
            lanes: number of lanes.
            action: one lane's action.
            fields: the observation fields to hash, in order.
            capacity: actions a lane holds.
        """
        if lanes < 1 or capacity < 1:
            raise ResourceError(f"an action log has lanes and capacity, not {lanes} and {capacity}")
        self.lanes = lanes
        self.capacity = capacity
        self._action = action
        self._fields = tuple(fields)
        self._log = _native.ActionLog(bytes, lanes, action.nbytes, capacity)

    @staticmethod
    def required(lanes: int, action: ArraySpec, capacity: int = CAPACITY) -> int:
        """Bytes that a log of this kind takes; pages never written to cost no memory."""
        return _native.ActionLog.required(lanes, action.nbytes, capacity)

    def begin_episode(self, lane: int, episode: int, obs: Mapping[str, Array]) -> None:
        """Start an episode in one lane.

        Args:
            lane: which.
            episode: its number.
            obs: field -> ``[lanes, ...]``; the lane's row is the episode's first observation.
        """
        self._log.begin_episode(lane, episode, self._hashed(obs))

    def bind(self, action: Array, obs: Mapping[str, Array]) -> RolloutLog:
        """Check a rollout's arrays once, for a loop that logs one vector step at a time.

        Args:
            action: ``[T + 1, lanes, ...]``, as the log's spec.
            obs: field -> ``[T + 1, lanes, ...]``.

        Returns:
            ``append(t)`` logs action row t and the observations of row t + 1, which the step gave; where that row
            begins an episode, ``begin_episode(lane, episode, t + 1)`` follows. Both raise ``IndexError`` for a row that
            is not there.
        """
        return RolloutLog(self._log, action, self._hashed(obs), len(action))

    def append_lane(self, lane: int, action: Array, obs: Mapping[str, Array]) -> None:
        """Log one step of one lane, while its episode is restored.

        Args:
            lane: which.
            action: ``[...]``, the lane's action.
            obs: field -> ``[lanes, ...]``; the lane's row is what the step gave.
        """
        self._log.append_lane(lane, action, self._hashed(obs))

    def position(self, lane: int) -> Position:
        """Where the lane stands; for the writer, and for a new one after its death."""
        return Position(*self._log.position(lane))

    def positions(self, into: Array) -> None:
        """Write where each lane stands into ``into``, int64 ``[lanes, 4]``: for the commit record."""
        for lane in range(self.lanes):
            into[lane] = self._log.position(lane)

    def restorable(self, lane: int) -> bool:
        """False if the lane's episode has outgrown the ring."""
        return self._log.position(lane)[2] <= self.capacity

    def rewind(self, lane: int, position: Position) -> None:
        """Go back to an earlier position of this log, in a new writer; what was logged since will be overwritten."""
        self._log.rewind(lane, position)

    def content(self, lane: int, position: Position) -> Array | None:
        """The actions of the position's episode up to it, ``[steps, ...]``; another process may be appending.

        Returns:
            The actions, or ``None`` if they are not all there (any more): the episode is longer than the ring, or the
            ring has come round.
        """
        if position.steps > self.capacity:
            return None
        actions = np.empty((position.steps, *self._action.shape), self._action.dtype)
        return actions if self._log.content(lane, position, actions) else None

    def _hashed(self, obs: Mapping[str, Array]) -> tuple[Array, ...]:
        return tuple([obs[name] for name in self._fields])
