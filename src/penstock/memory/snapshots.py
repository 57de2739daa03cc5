"""Snapshots of lanes: for each lane, the state of its environment at some earlier positions of its episode, as bytes.

The latest generations of each lane are kept, in the ring of a `Table`. Does not know what the bytes mean.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.errors import ResourceError
from penstock.memory.position import Position
from penstock.memory.table import Table
from penstock.types import Array, ArraySpec

__all__ = ["GENERATIONS", "SNAPSHOT_BYTES", "Snapshot", "Snapshots"]

SNAPSHOT_BYTES = 1 << 21
"""Bytes that a snapshot may have. One of Pong with four whole frames has 0.5 MB, one of Humanoid 0.05. Pages that are
never written cost no memory."""
GENERATIONS = 3
"""Snapshots that each lane keeps. While one is written, the latest and the one before it can be read: a position that
was committed before the latest one is restored from the one before it."""


class Snapshot(NamedTuple):
    """The state of a lane in the middle of an episode."""

    position: Position
    """Where in its episode the lane was."""
    episode_return: float
    """The episode's return up to there."""
    content: Array
    """``[n]`` uint8: the state of its environment."""


class Snapshots:
    """The latest snapshots of lanes that are stepped together. One writer at a time.

    A process that dies while it writes a snapshot loses that one: no reader sees it, and the next writer overwrites it.

    Attributes:
        nbytes: bytes that a snapshot may have.
    """

    def __init__(self, bytes: Array, lanes: int, nbytes: int) -> None:  # noqa: A002 - this package calls memory so
        """Attach to ``required(lanes, nbytes)`` bytes, uint8, that start at a multiple of 64 and were zero at first."""
        self.nbytes = nbytes
        self._table = Table(bytes, _specs(nbytes), lanes, GENERATIONS)

    @staticmethod
    def required(lanes: int, nbytes: int) -> int:
        """Bytes that the snapshots of ``lanes`` lanes take, of at most ``nbytes`` bytes each."""
        return Table.required(_specs(nbytes), lanes, GENERATIONS)

    def add(self, lane: int, snapshot: Snapshot) -> None:
        """Make this the lane's latest snapshot.

        Raises:
            ResourceError: it has too many bytes. The snapshots of the lane stay as they are.
        """
        if len(snapshot.content) > self.nbytes:
            raise ResourceError(f"a snapshot of {len(snapshot.content)} bytes; {self.nbytes} is the most")
        latest = self._read(lane, self._table.written(lane) - 1)
        # A lane may be restored again and again. That must not push its earlier snapshots out.
        if latest is None or latest.position != snapshot.position:
            self._write(lane, snapshot)

    def forget_after(self, lane: int, position: Position) -> None:
        """Forget the snapshots that were taken after this position. The lane goes on from there in another way."""
        if any(_number(found.position) > _number(position) for found in self._valid(lane)):
            # An entry without content voids those before it.
            self._write(lane, Snapshot(position, 0.0, np.empty(0, np.uint8)))

    def base(self, lane: int, position: Position) -> Snapshot | None:
        """A copy of the lane's latest snapshot from the episode of ``position``, taken there or before; else ``None``.

        Another process may add snapshots meanwhile.
        """
        for found in self._valid(lane):
            there = found.position
            if there[:2] == position[:2] and there.steps <= position.steps:
                return found
        return None

    def latest(self, lane: int) -> int:
        """The number of the first action after the lane's latest snapshot; -1 if it has none."""
        sequence = self._table.written(lane) - 1
        return -1 if sequence < 0 else _number(self._position(lane, sequence))

    def _valid(self, lane: int) -> Iterator[Snapshot]:
        """Copies of the snapshots that were not forgotten, the latest first."""
        limit = math.inf
        for sequence in range(self._table.written(lane) - 1, self._table.first(lane) - 1, -1):
            found = self._read(lane, sequence)
            if found is None:  # Overwritten during the copy, as are those before it.
                return
            if not len(found.content):
                limit = min(limit, _number(found.position))
            elif _number(found.position) <= limit:
                yield found

    def _write(self, lane: int, snapshot: Snapshot) -> None:
        table = self._table
        sequence = table.written(lane)
        slot = table.slot(table.claim(lane, sequence))
        slot["position"][...] = snapshot.position
        slot["episode_return"][...] = snapshot.episode_return
        slot["size"][...] = len(snapshot.content)
        slot["content"][: len(snapshot.content)] = snapshot.content
        table.push(lane, sequence)

    def _position(self, lane: int, sequence: int) -> Position:
        return Position(*map(int, self._table.arrays["position"][self._table.index(lane, sequence)]))

    def _read(self, lane: int, sequence: int) -> Snapshot | None:
        """A copy of one entry; ``None`` if there is none, or if it is overwritten before the copy has ended."""
        if sequence < 0:
            return None
        slot = self._table.slot(self._table.index(lane, sequence))
        size = min(int(slot["size"]), self.nbytes)
        found = Snapshot(self._position(lane, sequence), float(slot["episode_return"]), slot["content"][:size].copy())
        return found if sequence >= self._table.oldest(lane) else None


def _number(position: Position) -> int:
    """The number of the next action among all of the lane's actions."""
    return position.first_step + position.steps


def _specs(nbytes: int) -> tuple[ArraySpec, ...]:
    return (
        ArraySpec("position", (4,), "int64"),
        ArraySpec("episode_return", (), "float64"),
        ArraySpec("size", (), "int64"),
        ArraySpec("content", (nbytes,), "uint8"),
    )
