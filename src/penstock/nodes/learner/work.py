"""The base of nodes whose whole life is one generator. Each call of ``step`` runs it up to its next ``yield``.

Knows nothing of what is learned.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias

from penstock.nodes.contract import Ports

__all__ = ["Task", "Wake", "Work", "WorkingNode"]

Wake: TypeAlias = Callable[[], bool]
"""True once the work need not wait any longer."""
Work: TypeAlias = Iterator[Wake | None]
"""Work in parts. Yields ``None`` at least every ``STEP_LIMIT_S``, and a `Wake` to wait for."""
Task: TypeAlias = Generator[Wake | None, None, bool]
"""`Work` that may be given up. Returns true if it was done."""


class WorkingNode(ABC):
    """A node whose whole life is one generator. At its end the node is finished."""

    _work: Work | None = None
    _wake: Wake | None = None

    def open(self, ports: Ports) -> None:
        """Keep the ports, and begin."""
        self._ports = ports
        self._work = self._begin(ports)

    def ready(self) -> bool:
        """True while there is work that need not wait."""
        return self._work is not None and (self._wake is None or self._wake())

    def step(self) -> None:
        """Run the work up to its next ``yield``."""
        if self._work is None:
            return
        try:
            self._wake = next(self._work)
        except StopIteration:
            self._work = None
            self._ports.finished()

    def close(self) -> None:  # noqa: B027 - part of the contract, but these nodes do not need it
        """Nothing outlives the process."""

    @abstractmethod
    def _begin(self, ports: Ports) -> Work:
        """Make everything ready in this process. Returns the work, not begun yet."""
