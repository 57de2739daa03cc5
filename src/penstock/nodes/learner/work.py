"""Work that is one generator from a node's opening to its end, done in the parts that a scheduler asks for.

Knows nothing of what is learned.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TypeAlias

from penstock.nodes.contract import Ports

__all__ = ["STEP_LIMIT_S", "Wake", "Work", "WorkingNode"]

STEP_LIMIT_S = 0.05
"""How long one call of ``step`` may go on before the scheduler is given its turn."""

Wake: TypeAlias = Callable[[], bool]
"""True once what was waited for is there."""
Work: TypeAlias = Iterator[Wake | None]
"""Work in parts: it yields at least every ``STEP_LIMIT_S``, and where it waits, with what it waits for."""


class WorkingNode(ABC):
    """A node that says as one generator what it does all its life; once that is over, so is the node."""

    _work: Work | None = None
    _wake: Wake | None = None

    def open(self, ports: Ports) -> None:
        """Take the node's ends of its edges, and begin."""
        self._ports = ports
        self._work = self._begin(ports)

    def ready(self) -> bool:
        """True while there is work, or once what it waits for is there."""
        return self._work is not None and (self._wake is None or self._wake())

    def step(self) -> None:
        """Go on working."""
        if self._work is None:
            return
        try:
            self._wake = next(self._work)
        except StopIteration:
            self._work = None
            self._ports.finished()

    def close(self) -> None:  # noqa: B027 - the contract has it, these nodes do not need it
        """Nothing outlives the process."""

    @abstractmethod
    def _begin(self, ports: Ports) -> Work:
        """Make everything ready, in the process that the work is done in; the work itself, not begun yet."""
