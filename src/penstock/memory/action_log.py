"""The action log: the last actions of each lane, its episode and its position there. Holds no observation.

To restore an environment:

1. Read ``content(lane, position)``: the actions of the episode so far.
2. In the log of a dead writer, ``rewind`` to the start of the episode. The same actions are then written over
   themselves and stay readable. A new log needs no rewind.
3. Reset the environment with the episode's seed, and call ``begin_episode``.
4. Give it the actions again, with ``append_lane`` after each. Compare the hashes of the two positions.
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
"""Actions that the ring of a lane holds. A longer episode is not restorable."""


class Position(NamedTuple):
    """Position of a lane: four int64, so an array of positions is ``[lanes, 4]``."""

    episode: int
    """Number of the episode."""
    first_step: int
    """Number of its first action among all of the lane's actions."""
    steps: int
    """Actions since its reset."""
    hash: int
    """Rolling hash of its observations, the first included."""


class ActionLog:
    """Actions of lanes that are stepped together. One writer at a time.

    Attributes:
        lanes: number of lanes.
        capacity: number of actions that each lane holds.
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
            capacity: number of actions that each lane holds.
        """
        if lanes < 1 or capacity < 1:
            raise ResourceError(f"an action log needs at least 1 lane and 1 action, not {lanes} and {capacity}")
        self.lanes = lanes
        self.capacity = capacity
        self._action = action
        self._fields = tuple(fields)
        self._log = _native.ActionLog(bytes, lanes, action.nbytes, capacity)

    @staticmethod
    def required(lanes: int, action: ArraySpec, capacity: int = CAPACITY) -> int:
        """Bytes that such a log takes. Pages that are never written cost no memory."""
        return _native.ActionLog.required(lanes, action.nbytes, capacity)

    def begin_episode(self, lane: int, episode: int, obs: Mapping[str, Array]) -> None:
        """Start an episode in one lane.

        Args:
            lane: index of the lane.
            episode: number of the episode.
            obs: field -> ``[lanes, ...]``. Element ``lane`` is the episode's first observation.
        """
        self._log.begin_episode(lane, episode, self._hashed(obs))

    def bind(self, action: Array, obs: Mapping[str, Array]) -> RolloutLog:
        """Check a rollout's arrays once, for a loop that logs one vector step at a time.

        Args:
            action: ``[T + 1, lanes, ...]``, as the log's spec.
            obs: field -> ``[T + 1, lanes, ...]``.

        Returns:
            ``append(t)`` logs the action of row t and the observations of row t + 1. Call ``begin_episode(lane,
            episode, t + 1)`` after it for each lane whose next episode begins with row t + 1. Both raise ``IndexError``
            for a row outside the rollout.
        """
        return RolloutLog(self._log, action, self._hashed(obs), len(action))

    def append_lane(self, lane: int, action: Array, obs: Mapping[str, Array]) -> None:
        """Log one step of one lane, while its episode is restored.

        Args:
            lane: index of the lane.
            action: ``[...]``, the lane's action.
            obs: field -> ``[lanes, ...]``. Element ``lane`` is the observation after the step.
        """
        self._log.append_lane(lane, action, self._hashed(obs))

    def position(self, lane: int) -> Position:
        """The lane's position: for the writer, and for its successor after its death."""
        return Position(*self._log.position(lane))

    def positions(self, into: Array) -> None:
        """Write the position of each lane into ``into``, int64 ``[lanes, 4]``: for the commit record."""
        for lane in range(self.lanes):
            into[lane] = self._log.position(lane)

    def restorable(self, lane: int) -> bool:
        """False if the lane's episode has more actions than the ring holds."""
        return self._log.position(lane)[2] <= self.capacity

    def rewind(self, lane: int, position: Position) -> None:
        """Go back to an earlier position of this log, as its new writer. Later actions will be overwritten."""
        self._log.rewind(lane, position)

    def content(self, lane: int, position: Position) -> Array | None:
        """The actions from the start of the episode up to ``position``: ``[steps, ...]``.

        Another process may append meanwhile.

        Returns:
            The actions. ``None`` if the ring no longer holds all of them: the episode is longer than the ring, or later
            actions have overwritten the first ones.
        """
        if position.steps > self.capacity:
            return None
        actions = np.empty((position.steps, *self._action.shape), self._action.dtype)
        return actions if self._log.content(lane, position, actions) else None

    def _hashed(self, obs: Mapping[str, Array]) -> tuple[Array, ...]:
        return tuple([obs[name] for name in self._fields])
