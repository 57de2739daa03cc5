"""Seats: which policy nodes belong to which machine. A machine takes a seat when it is to run environment nodes.

The supervisor at home starts each policy node again that dies, wherever it runs. So the program of home has the policy
nodes of all seats, and those of an empty seat do not run. Knows no cluster.
"""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Generic, TypeVar

from penstock.cluster.movable import movable_envs, nodes_of
from penstock.program.graph import Ask, Program, RemoteAnswer

__all__ = ["Seats", "answerers", "names_on_hosts", "seats"]

Place = TypeVar("Place")
HOME = 0
"""The seat of home. No host takes it, because the environment nodes of home know its policy nodes by their names."""


def answerers(program: Program) -> tuple[str, ...]:
    """The policy nodes that answer movable environment nodes; empty if these compute their own actions."""
    names = nodes_of(program, movable_envs(program))
    return tuple(
        node
        for edge in program.edges
        if isinstance(edge, Ask) and isinstance(edge.answer, RemoteAnswer) and names & set(edge.askers)
        for node in edge.answer.nodes
    )


def seats(program: Program) -> tuple[tuple[str, ...], ...]:
    """The policy nodes of each machine, by their names at home: first those of home, then of hosts.

    There is a seat for each environment node, in case that all of them run on hosts, and each on another one.
    """
    names = answerers(program)
    if not names:
        return ()
    hosts = range(HOME + 1, HOME + 1 + len(movable_envs(program)))
    return (names, *(tuple(f"{name}.{seat}" for name in names) for seat in hosts))


def names_on_hosts(program: Program) -> dict[str, str]:
    """Policy node of a host, by its name at home -> its name there. On each host it has the name of one of home's."""
    names = answerers(program)
    return {name: there for seat in seats(program)[1:] for name, there in zip(seat, names, strict=True)}


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
