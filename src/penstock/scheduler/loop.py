"""The event loop of one process: poll every node, step those that are ready, sleep on the process's bell.

It has no queue. Other processes ring its bell on push, release, publish and recover. A node that is `Timed` also gets
its turn when it is due.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.memory.doorbell import CEILING_S
from penstock.nodes.contract import Node, Timed

__all__ = ["Bell", "Loop", "Placed", "Vitals"]


class Bell(Protocol):
    """The bell of this process."""

    def word(self) -> int:
        """A number that changes with every ring."""
        ...

    def wait(self, seen: int, timeout_s: float) -> None:
        """Sleep until the word differs from ``seen``, a signal comes or the time is up."""
        ...


class Vitals(Protocol):
    """Where a node's signs of life are written."""

    def beat(self) -> None:
        """The node's loop begins a round."""
        ...

    def worked(self, begin_ns: int, end_ns: int) -> None:
        """The node worked from ``begin_ns`` to ``end_ns``, and was idle between its last turn and ``begin_ns``."""
        ...

    def idle(self, until_ns: int) -> None:
        """The node has been idle since its last turn."""
        ...


class Placed(NamedTuple):
    """A node of this process, and where its signs of life are written."""

    node: Node
    vitals: Vitals


class Loop:
    """Runs nodes until ``ended`` is true."""

    def __init__(self, placed: Sequence[Placed], bell: Bell, ended: Callable[[], bool]) -> None:
        self._placed = tuple(placed)
        self._timed = tuple(node for node, _ in self._placed if isinstance(node, Timed))
        self._bell = bell
        self._ended = ended

    def run(self) -> None:
        """Run rounds until the end. An exception of a node ends the loop and reaches the caller."""
        while not self._ended():
            seen = self._bell.word()
            if not self.round():
                self._bell.wait(seen, self._patience_s())
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

    def _patience_s(self) -> float:
        """How long to sleep: until a node is due, at most ``CEILING_S``."""
        if not self._timed:
            return CEILING_S
        left_s = min(node.due() for node in self._timed) - time.monotonic()
        return min(max(left_s, 0.0), CEILING_S)

    def _slept(self, until_ns: int) -> None:
        for _, vitals in self._placed:
            vitals.idle(until_ns)
