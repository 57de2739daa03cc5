"""Keeps the trace of a process: what its nodes did when. Without ``--trace`` it keeps nothing and costs one call."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import monotonic_ns
from typing import Protocol

from penstock.memory.spans import SpanRing
from penstock.metrics.trace import OPEN, STEP, ring_path

__all__ = ["OPEN", "NoTrace", "NodeTrace", "Trace", "Traces", "traces"]


class NodeTrace(Protocol):
    """Keeps the spans of one node."""

    def stepped(self, begin_ns: int, end_ns: int) -> None:
        """The node had its turn."""
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """The work inside the ``with`` block. A block may stay open from one turn to a later one."""
        ...


class Traces(Protocol):
    """Keeps the spans of all nodes of a process."""

    def node(self, name: str) -> NodeTrace:
        """What keeps the spans of one node."""
        ...

    def close(self) -> None:
        """Keep nothing more."""
        ...


class NoTrace:
    """Keeps nothing; implements ``NodeTrace`` and ``Traces``."""

    _NOTHING = nullcontext()

    def node(self, _name: str) -> "NoTrace":
        """The same object for every node."""
        return self

    def stepped(self, begin_ns: int, end_ns: int) -> None:
        """Keep nothing."""

    def span(self, _name: str) -> AbstractContextManager[None]:
        """A context that does nothing."""
        return self._NOTHING

    def close(self) -> None:
        """There is nothing to close."""


class Trace:
    """Keeps the spans of one process; implements ``Traces``.

    Args:
        folder: of the rings, one file for each process.
        group: the placement group of this process.
    """

    def __init__(self, folder: Path, group: str) -> None:
        self._ring = SpanRing.at(ring_path(folder, group))

    def node(self, name: str) -> "_KeptSpans":
        """What keeps the spans of one node."""
        return _KeptSpans(self._ring, name)

    def close(self) -> None:
        """Close the ring. Its file stays."""
        self._ring.close()


def traces(folder: Path | None, group: str) -> Traces:
    """What keeps the spans of a process; nothing is kept without a folder."""
    return NoTrace() if folder is None else Trace(folder, group)


class _KeptSpans:
    """Implements ``NodeTrace`` over the ring of the node's process."""

    def __init__(self, ring: SpanRing, name: str) -> None:
        self._ring = ring
        self._node = ring.name(name)
        self._step = ring.name(STEP)

    def stepped(self, begin_ns: int, end_ns: int) -> None:
        self._ring.add(begin_ns, end_ns, self._node, self._step)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        begin_ns = monotonic_ns()
        try:
            yield
        finally:
            self._ring.add(begin_ns, monotonic_ns(), self._node, self._ring.name(name))
