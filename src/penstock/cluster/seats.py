"""Seats: which policy nodes belong to which machine. A machine takes a seat when it is to run environment nodes.

The supervisor at home starts each policy node again that dies, wherever it runs. So the program of home has the policy
nodes of all seats, and those of an empty seat do not run. Knows no cluster.
"""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Generic, TypeVar

__all__ = ["Seats"]

Place = TypeVar("Place")
HOME = 0
"""The seat of home. No host takes it, because the environment nodes of home know its policy nodes by their names."""


class Seats(Generic[Place]):
    """The seats of a run.

    Args:
        home: the launcher's machine.
        groups: for each seat the groups of its policy nodes, home first; as many seats for hosts as hosts may have
            environment nodes at the same time. Empty: environment nodes compute their own actions.
    """

    def __init__(self, home: Place, groups: Sequence[tuple[str, ...]]) -> None:
        self._home = home
        self._groups = tuple(groups)
        self._seat_of = {group: seat for seat, own in enumerate(groups) for group in own}
        self._taken: dict[int, Place] = {}
        """Seat -> its machine."""

    def __contains__(self, group: str) -> bool:
        return group in self._seat_of

    def take(self, place: Place, used: Collection[Place]) -> tuple[str, ...]:
        """Give a machine a seat, if it has none.

        An empty seat is taken first, then that of a machine that runs no environment nodes any more.

        Args:
            place: a machine that is to run environment nodes.
            used: all machines that are to run environment nodes, this one included.

        Returns:
            The groups that are to start on the machine; empty if it had a seat, or if there are no policy nodes.
        """
        if not self._groups or place in self._taken.values():
            return ()
        seat = HOME if place == self._home else self._free(used)
        self._taken[seat] = place
        return self._groups[seat]

    def _free(self, used: Collection[Place]) -> int:
        hosts = range(HOME + 1, len(self._groups))
        empty = (seat for seat in hosts if seat not in self._taken)
        left = (seat for seat in hosts if seat in self._taken and self._taken[seat] not in used)
        return next(chain(empty, left))

    def taken(self, group: str) -> bool:
        """Whether the seat of a group is taken, so that the group is to run."""
        return self._seat_of[group] in self._taken

    def place(self, group: str) -> Place:
        """The machine that is to run a group.

        Raises:
            KeyError: its seat is empty.
        """
        return self._taken[self._seat_of[group]]
