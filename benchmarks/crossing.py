"""The time of a message from this process to a second one that waits for it. Knows nothing of the message."""

import mmap
import multiprocessing
import multiprocessing.connection
import select
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.measured import Kind, Measured
from benchmarks.timing import Contestant, compare
from penstock.errors import ResourceError
from penstock.memory.segment import Segment
from penstock.types import Array

_FORK = multiprocessing.get_context("fork")
# With fork both sides hold the same structures and descriptors. No thread has been started before.

PAUSE_S = 300e-6
"""Pause from one arrival to the next departure. A receiver that sleeps is asleep again after it."""
LIMIT_S = 10.0
"""A message that takes longer counts as lost."""


class Way(Protocol):
    """One way from a process to another."""

    def send(self, number: int) -> None:
        """Send off message ``number``, one more than the last. The one before it has arrived."""
        ...

    def receive(self, number: int) -> None:
        """In the second process: return once message ``number`` is here."""
        ...


class Rival(NamedTuple):
    """A way that is compared with others."""

    what: str
    kind: Kind
    way: Way


def across(
    case: str, rivals: Sequence[Rival], messages: int, rounds: int, beside: Sequence[Contestant] = ()
) -> list[Measured]:
    """A row for each rival, from departure to arrival in a second process.

    Args:
        case: the name of what is compared.
        rivals: ours first.
        messages: number of messages in one round.
        rounds: number of rounds; the rivals take turns.
        beside: contestants within this process that take turns with the rivals; their rows follow.
    """
    # All processes are forked before the first round. A way may start threads when it is used, and a process that is
    # forked later could inherit a lock that no thread releases.
    crossings = [Crossing(rival.way, messages) for rival in rivals]
    contestants = [Contestant(rival.what, rival.kind, one.round) for rival, one in zip(rivals, crossings, strict=True)]
    try:
        return compare(case, [*contestants, *beside], rounds)
    finally:
        for crossing in crossings:
            crossing.close()


class Crossing:
    """A way, and a second process at its other end that sleeps between the rounds."""

    def __init__(self, way: Way, messages: int) -> None:
        self._way = way
        self._first = 1
        self._arrived = np.frombuffer(mmap.mmap(-1, messages * 8), np.int64)
        self._begin, begin = _FORK.Pipe()
        self._receiver = _FORK.Process(target=_receive, args=(way, self._arrived, begin), daemon=True)
        self._receiver.start()

    def round(self) -> Array:
        """Seconds from just before ``send`` to just after ``receive``, of each message."""
        arrived, send, now = self._arrived, self._way.send, time.perf_counter_ns
        arrived[:] = 0
        left = np.zeros_like(arrived)
        self._begin.send(self._first)
        for at in range(len(arrived)):
            _pause(PAUSE_S)
            left[at] = now()
            send(self._first + at)
            while arrived[at] == 0:
                _let_go()
                if now() - left[at] > LIMIT_S * 1e9:
                    raise ResourceError(f"message {self._first + at} of {type(self._way).__name__} did not arrive")
        self._first += len(arrived)
        return (arrived - left) / 1e9

    def close(self) -> None:
        """End the second process."""
        self._receiver.kill()
        self._receiver.join()


def shared(nbytes: int) -> Array:
    """Zeroed shared memory, uint8."""
    return Segment.create(nbytes, "benchmark").bytes


def _receive(way: Way, arrived: Array, begin: multiprocessing.connection.Connection) -> None:
    receive, now = way.receive, time.perf_counter_ns
    while True:
        first = begin.recv()
        for at in range(len(arrived)):
            receive(first + at)
            arrived[at] = now()


def _pause(seconds: float) -> None:
    """Wait without sleeping, because a sender that has just worked has warm caches as well."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        _let_go()


def _let_go() -> None:
    """Release the interpreter lock, because a queue sends from a thread of its own. ``sleep(0)`` would take 50 us."""
    select.select((), (), (), 0)
