"""THE contract of a node: what a scheduler may call, and what a node may use.

Its ends of edges are in `penstock.nodes.ports`.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.memory.action_log import Position
from penstock.memory.rounds import Rounds
from penstock.memory.table import Table
from penstock.nodes.ports import (
    ActionLogPort,
    BoardReader,
    BoardWriter,
    PolicyPort,
    QuestionPort,
    RecordPort,
    StreamReader,
    StreamWriter,
)
from penstock.types import Array

__all__ = ["Balance", "LaneStart", "Node", "Ports"]


class Node(Protocol):
    """One worker of a program. Its class is made from its settings, a frozen dataclass of plain data."""

    def open(self, ports: "Ports") -> None:
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


class Balance(NamedTuple):
    """What became of every transition of a run: ``collected`` is the sum of the rest, at any instant."""

    collected: int
    """Rows that the lanes gave, counted by who stepped them."""
    learned: int
    """Rows of updates that were committed."""
    in_flight: int
    """Rows that wait for the learner or are being learned from."""
    stale: int
    """Rows dropped because their policy was too old."""
    spoilt: int
    """Rows dropped because they held, or came along with, NaN or infinity."""


class Ports(Protocol):
    """What a node is given when it opens: its ends of the program's edges, by their names."""

    name: str
    """The node's name: its identity, which survives a restart."""
    incarnation: int
    """This life of the node; never reused within a run."""
    former: tuple[int, ...]
    """The node's earlier lives, which have died: what they held was taken back, what they committed stands."""

    def stream_writer(self, edge: str) -> StreamWriter:
        """The writing end of a stream, or of this node's ring of a table."""
        ...

    def stream_reader(self, edge: str) -> StreamReader:
        """The reading end of a stream."""
        ...

    def table(self, edge: str) -> Table:
        """A table, to be looked at."""
        ...

    def priorities(self, edge: str) -> Array | None:
        """The bytes of the tree that ranks a table's rows; ``None`` if they are not ranked."""
        ...

    def board_writer(self, edge: str) -> BoardWriter:
        """The writing end of a board."""
        ...

    def board_reader(self, edge: str) -> BoardReader:
        """A reading end of a board."""
        ...

    def policy(self, edge: str, first_lane: int, lanes: int) -> PolicyPort:
        """The asking end of an ask edge, for these lanes."""
        ...

    def questions(self, edge: str) -> QuestionPort:
        """The answering end of an ask edge, for this node's share of the askers."""
        ...

    def record(self, edge: str) -> RecordPort:
        """The owner's end of a record."""
        ...

    def rounds(self, edge: str) -> Rounds:
        """This node's end of rounds."""
        ...

    def action_log(self, edge: str) -> ActionLogPort:
        """The action log of one node's lanes."""
        ...

    def busy(self, name: str, limit_s: float) -> AbstractContextManager[None]:
        """Work that cannot be cut: the supervisor counts the node as alive until the limit."""
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Names a part of this node's work in the run's trace; costs next to nothing where none is kept.

        For parts of 50 us and more. The ``with`` block may stay open from one ``step`` to a later one.
        """
        ...

    def sign(self) -> memoryview:
        """An int64 whose changes count as signs of life: plain stores, for loops where a call would cost too much."""
        ...

    def count(self, counter: str, amount: int = 1) -> None:
        """Add to one of this node's counters in shared memory, at the source of what is counted."""
        ...

    def note(self, counter: str, value: int) -> None:
        """Set one of this node's counters, to what its next life would set it to as well."""
        ...

    def counters(self) -> dict[str, dict[str, int]]:
        """The counters of every node: node -> counter -> value."""
        ...

    def balance(self) -> Balance | None:
        """What became of every transition, all of one instant; ``None`` where rollouts are not committed by rows."""
        ...

    def stopping(self) -> bool:
        """True once the run has been asked to end: finish what is begun, begin nothing new."""
        ...

    def finished(self) -> None:
        """This node has nothing left to do, ever: the run may end once all it waits for have said so."""
        ...


@dataclass(frozen=True)
class LaneStart:
    """Where a lane begins in this life of the run."""

    episode: int = 0
    step: int = 0
    """Steps that the lane has taken in its whole life; it keys the noise."""
    rollout: int = 0
    """Rollouts that the lane has given in its whole life; in lock step the version it waits for."""
    position: Position | None = None
    """Where in its episode the lane stood; ``None``: it begins one."""
    collected: int = 0
    """Rows that the lane has given in its whole life."""
    spoilt: int = 0
    """How many of them were dropped for what they held."""
    actions: Array | None = None
    """``[n, ...]``: what the lane did from the episode's reset to that position, in the policy's units."""
