"""THE contract of a node: what a scheduler may call, and what a node may use while it runs."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol


from penstock.types import Array, Arrays

__all__ = ["BoardReader", "BoardWriter", "Node", "PolicyPort", "Ports", "StreamReader", "StreamWriter"]


class StreamWriter(Protocol):
    """The writing end of a stream."""

    def claim(self, sequence: int) -> int | None:
        """A free slot as this node's own, or ``None`` (the reader has to free one first)."""
        ...

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot, as views: written in place."""
        ...

    def push(self, index: int) -> None:
        """Hand the slot to the readers and ring their bells."""
        ...


class StreamReader(Protocol):
    """The reading end of a stream."""

    arrays: Arrays
    """Field -> ``[slots, ...]``: all slots as one array, so that a minibatch is one gather."""

    def ready(self) -> int:
        """How many slots are waiting."""
        ...

    def take(self) -> int | None:
        """The oldest waiting slot of some writer as this node's own, or ``None``."""
        ...

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot, as views."""
        ...

    def release(self, index: int) -> None:
        """Give the slot back to the writers and ring their bells."""
        ...


class BoardWriter(Protocol):
    """The writing end of a board."""

    def publish(self, arrays: Mapping[str, Array], version: int) -> None:
        """Make ``arrays`` the latest value and ring the readers' bells."""
        ...


class BoardReader(Protocol):
    """A reading end of a board."""

    def version(self) -> int:
        """The latest version, or -1 before the first."""
        ...

    def read(self, into: Mapping[str, Array]) -> int:
        """Copy the latest value, whole, into ``into`` and return its version."""
        ...


class PolicyPort(Protocol):
    """Where a node asks for actions. Whether the policy runs in this process is placement; the node does not know."""

    version: int
    """Version of the parameters that answered last."""

    def ask(self, rows: Mapping[str, Array], step: int) -> None:
        """Ask for the outputs of ``act`` for these rows.

        Args:
            rows: observation fields ``[n, ...]`` to read; ``action`` and the algorithm's row fields ``[n, ...]`` to write.
            step: the lanes' step count, which keys the noise.
        """
        ...

    def answered(self) -> bool:
        """True once the rows hold their outputs."""
        ...

    def take(self) -> None:
        """Accept the answer; the next ``ask`` may follow."""
        ...


class Ports(Protocol):
    """What a node is given when it opens."""

    name: str
    """The node's name."""
    incarnation: int
    """This life of the node; never reused within a run."""

    def stream_writer(self, edge: str) -> StreamWriter:
        """The writing end of stream ``edge``."""
        ...

    def stream_reader(self, edge: str) -> StreamReader:
        """The reading end of stream ``edge``."""
        ...

    def board_writer(self, edge: str) -> BoardWriter:
        """The writing end of board ``edge``."""
        ...

    def board_reader(self, edge: str) -> BoardReader:
        """A reading end of board ``edge``."""
        ...

    def busy(self, name: str, limit_s: float) -> AbstractContextManager[None]:
        """Work that cannot be cut: the supervisor counts the node as alive until the limit."""
        ...

    def count(self, counter: str, amount: int = 1) -> None:
        """Add to one of this node's counters in shared memory."""
        ...


class Node(Protocol):
    """One worker of a program."""

    def open(self, ports: Ports) -> None:
        """Called once, in the process that runs the node."""
        ...

    def ready(self) -> bool:
        """True if ``step`` has work and room for its output. Never blocks."""
        ...

    def step(self) -> None:
        """One bounded piece of work (at most about 50 ms). Never waits."""
        ...

    def close(self) -> None:
        """Called once, also after an error."""
        ...
