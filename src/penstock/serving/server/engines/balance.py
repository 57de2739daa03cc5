"""Balances: which worker process answers which questions. They see queues and names, no sockets."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Protocol, TypeVar
from zlib import crc32

from penstock.serving.server.engines.batcher import Ask

__all__ = ["BALANCES", "Balance", "Candidate", "RoundRobin", "Shortest", "Sticky"]


class Candidate(Protocol):
    """A worker that is able to answer."""

    @property
    def place(self) -> int:
        """Its number among the workers. One that is started for a dead one has the dead one's."""
        ...

    @property
    def rows(self) -> int:
        """Rows that it has to answer."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether a further batch would not wait behind others for long."""
        ...


Some = TypeVar("Some", bound=Candidate)


class Balance(Protocol):
    """Chooses workers. One object for the workers of one version."""

    def parts(self, asks: list[Ask]) -> list[list[Ask]]:
        """Cut a batch into parts. One worker answers each part."""
        ...

    def choose(self, workers: Sequence[Some], asks: list[Ask]) -> Some:
        """The worker for a part, among those that are able to answer; at least one."""
        ...


class Shortest:
    """The worker with the fewest rows to answer.

    Args:
        workers: how many there are.
    """

    def __init__(self, workers: int) -> None:
        del workers

    def parts(self, asks: list[Ask]) -> list[list[Ask]]:
        """The whole batch."""
        return [asks]

    def choose(self, workers: Sequence[Some], asks: list[Ask]) -> Some:
        """See `Balance`."""
        del asks
        return _shortest(workers)


class RoundRobin:
    """One worker after the other, whatever the size of their batches. One without room is left out.

    Args:
        workers: how many there are.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._turn = count()

    def parts(self, asks: list[Ask]) -> list[list[Ask]]:
        """The whole batch."""
        return [asks]

    def choose(self, workers: Sequence[Some], asks: list[Ask]) -> Some:
        """See `Balance`."""
        del asks
        turn = next(self._turn)
        return min(workers, key=lambda one: (not one.has_room, (one.place - turn) % self._workers))


class Sticky:
    """A session's name decides which worker answers it. While that worker is away, the next one does.

    Questions of no session go to the worker with the fewest rows.

    Args:
        workers: how many there are.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def parts(self, asks: list[Ask]) -> list[list[Ask]]:
        """The questions of each worker's sessions, and those of no session."""
        parts: dict[int | None, list[Ask]] = {}
        for ask in asks:
            parts.setdefault(self._place(ask), []).append(ask)
        return list(parts.values())

    def choose(self, workers: Sequence[Some], asks: list[Ask]) -> Some:
        """See `Balance`."""
        place = self._place(asks[0])
        if place is None:
            return _shortest(workers)
        return min(workers, key=lambda one: (one.place - place) % self._workers)

    def _place(self, ask: Ask) -> int | None:
        """The place of a session's worker: the same in every process, unlike Python's own hash."""
        return None if ask.session is None else crc32(repr(ask.session.key).encode()) % self._workers


BALANCES: Mapping[str, type[Shortest] | type[RoundRobin] | type[Sticky]] = {
    "shortest": Shortest,
    "round_robin": RoundRobin,
    "sticky": Sticky,
}


def _shortest(workers: Sequence[Some]) -> Some:
    return min(workers, key=lambda one: (not one.has_room, one.rows))
