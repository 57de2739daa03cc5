"""The event loop of one process: poll every node, step those that are ready, sleep on the process's bell.

It has no clock of its own and no queue: what wakes it is a bell, rung on push, release, publish and recover.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.nodes.contract import Node

__all__ = ["Bell", "Loop", "Placed", "Vitals"]

CEILING_S = 0.1
"""No sleep is longer: a lost bell costs at most this, and heartbeats go on."""


class Bell(Protocol):
    """The bell of this process."""

    def word(self) -> int:
        """A number that changes with every ring."""
        ...

    def wait(self, seen: int, timeout_s: float) -> None:
        """Sleep until the word is not ``seen`` any more, a signal comes or the time is up."""
        ...


class Vitals(Protocol):
    """Where a node's signs of life are written."""

    def beat(self) -> None:
        """The node's loop goes round."""
        ...

    def worked(self, begin_ns: int, end_ns: int) -> None:
        """The node was at work from ``begin_ns`` to ``end_ns``, and idle since its last turn."""
        ...

    def idle(self, until_ns: int) -> None:
        """The node has been idle since its last turn."""
        ...


class Placed(NamedTuple):
    """A node in this process, and where its signs of life go."""

    node: Node
    vitals: Vitals


class Loop:
    """Runs nodes until ``ended`` is true."""

    def __init__(self, placed: Sequence[Placed], bell: Bell, ended: Callable[[], bool]) -> None:
        self._placed = tuple(placed)
        self._bell = bell
        self._ended = ended

    def run(self) -> None:
        """Go round until the end; an exception of a node ends the loop and is the caller's."""
        while not self._ended():
            seen = self._bell.word()
            if not self.round():
                self._bell.wait(seen, CEILING_S)
                self._slept(time.monotonic_ns())

    def round(self) -> bool:
        """Poll every node once; True if any had work."""
        worked = False
        for node, vitals in self._placed:
            vitals.beat()
            if node.ready():
                begun = time.monotonic_ns()
                node.step()
                vitals.worked(begun, time.monotonic_ns())
                worked = True
        return worked

    def _slept(self, until_ns: int) -> None:
        for _, vitals in self._placed:
            vitals.idle(until_ns)
