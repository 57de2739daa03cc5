"""The action log: the last actions of each lane, its episode and its position there. Holds no observation.

For a long episode, the log also keeps snapshots of its environment. The *base* of a position is the latest snapshot
that was taken at this position or before it. Without such a snapshot, the base is the episode's reset.

To restore an environment:

1. Read ``past(lane, position)``: the base, and the actions from there to the position.
2. In the log of a dead writer, ``rewind`` to the start of the episode. The same actions are then written over
   themselves and stay readable. A new log needs no rewind.
3. Reset the environment with the episode's seed, and call ``begin_episode``.
4. If there is a snapshot, apply it to the environment, and call ``begin_at``. Otherwise call ``forget_snapshots``.
5. Give it the actions again, with ``append_lane`` after each. Compare the hashes of the two positions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.errors import ResourceError
from penstock.memory import _native
from penstock.memory.layout import aligned
from penstock.memory.position import Position
from penstock.memory.snapshots import Snapshot, Snapshots
from penstock.types import Array, ArraySpec

__all__ = ["CAPACITY", "ActionLog", "Past", "Position", "RolloutLog"]

RolloutLog = _native.RolloutLog
"""An action log and the arrays of one rollout. See `ActionLog.bind`."""

CAPACITY = 10_000
"""Actions that the ring of a lane holds. A position that is further from its base is not restorable."""


class Past(NamedTuple):
    """What restores a lane to a position of its episode."""

    base: Snapshot | None
    """``None``: the episode's reset."""
    actions: Array
    """``[n, ...]``: the lane's actions from the base to the position, in the policy's units."""


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
        *,
        snapshot_bytes: int = 0,
    ) -> None:
        """Attach to ``required(lanes, action, capacity, snapshot_bytes)`` bytes, uint8, aligned to 64, zero at first.

        Args:
            bytes: the memory.
            lanes: number of lanes.
            action: one lane's action.
            fields: the observation fields to hash, in order.
            capacity: number of actions that each lane holds.
            snapshot_bytes: bytes that a snapshot may have. 0: the log keeps no snapshots.
        """
        if lanes < 1 or capacity < 1:
            raise ResourceError(f"an action log needs at least 1 lane and 1 action, not {lanes} and {capacity}")
        self.lanes = lanes
        self.capacity = capacity
        self._action = action
        self._fields = tuple(fields)
        self._log = _native.ActionLog(bytes, lanes, action.nbytes, capacity)
        self._snapshots: Snapshots | None = None
        if snapshot_bytes:
            behind = aligned(_native.ActionLog.required(lanes, action.nbytes, capacity))
            self._snapshots = Snapshots(bytes[behind:], lanes, snapshot_bytes)

    @staticmethod
    def required(lanes: int, action: ArraySpec, capacity: int = CAPACITY, snapshot_bytes: int = 0) -> int:
        """Bytes that such a log takes. Pages that are never written cost no memory."""
        actions: int = _native.ActionLog.required(lanes, action.nbytes, capacity)
        return actions if not snapshot_bytes else aligned(actions) + Snapshots.required(lanes, snapshot_bytes)

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

    def rewind(self, lane: int, position: Position) -> None:
        """Go back to an earlier position of this log, as its new writer. Later actions will be overwritten."""
        self._log.rewind(lane, position)

    @property
    def snapshot_every(self) -> int:
        """Actions of an episode after which a snapshot is due.

        It is half the ring. So the ring has all actions since the snapshot before the latest one.
        """
        return max(1, self.capacity // 2)

    @property
    def snapshot_bytes(self) -> int:
        """Bytes that a snapshot may have. 0: the log keeps no snapshots."""
        return 0 if self._snapshots is None else self._snapshots.nbytes

    def add_snapshot(self, lane: int, snapshot: Snapshot) -> None:
        """Keep a snapshot of the lane's environment. An earlier one stays as well, the oldest ones do not.

        Raises:
            ResourceError: it has more than ``snapshot_bytes`` bytes.
        """
        if self._snapshots is None:
            raise ResourceError("this action log keeps no snapshots")
        self._snapshots.add(lane, snapshot)

    def new_base(self, lane: int, position: Position, told: int) -> Snapshot | None:
        """The base of ``position``, if it is later than the lane's action number ``told``; ``None`` otherwise.

        Takes a microsecond where there is no new snapshot.
        """
        if self._snapshots is None or self._snapshots.latest(lane) <= told:
            return None
        base = self._snapshots.base(lane, position)
        return base if base is not None and base.position.first_step + base.position.steps > told else None

    def begin_at(self, lane: int, base: Snapshot) -> None:
        """Go on from a snapshot that was applied to the lane's environment, as the lane's new writer."""
        self.add_snapshot(lane, base)
        self._log.rewind(lane, base.position)

    def forget_snapshots(self, lane: int, position: Position) -> None:
        """Forget the snapshots from after ``position``, as the lane's new writer. The lane goes on from there."""
        if self._snapshots is not None:
            self._snapshots.forget_after(lane, position)

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

    def past(self, lane: int, position: Position) -> Past | None:
        """The base of ``position``, and the actions from there on.

        Another process may append meanwhile.

        Returns:
            Both. ``None`` if the ring no longer holds all of the actions.
        """
        base = None if self._snapshots is None else self._snapshots.base(lane, position)
        actions = self.content(lane, position) if base is None else self.since(lane, base.position, position)
        return None if actions is None else Past(base, actions)

    def since(self, lane: int, before: Position, position: Position) -> Array | None:
        """The actions from one position to a later one of the same episode; ``None`` as for ``content``."""
        # A log that goes on from a base may hold no action before it, and so not even know its number.
        if before.steps == position.steps:
            return np.empty((0, *self._action.shape), self._action.dtype)
        as_if_begun = position.first_step + before.steps, position.steps - before.steps
        return self.content(lane, Position(position.episode, *as_if_begun, position.hash))

    def _hashed(self, obs: Mapping[str, Array]) -> tuple[Array, ...]:
        return tuple([obs[name] for name in self._fields])
