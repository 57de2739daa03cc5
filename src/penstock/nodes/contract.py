"""THE contract of a node: which methods a scheduler calls, and which a node may use.

The contracts of its ends of edges are in `penstock.nodes.ports`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from penstock.memory.action_log import Position
from penstock.memory.snapshots import Snapshot
from penstock.memory.table import Table
from penstock.nodes.ports import (
    ActionLogPort,
    BoardReader,
    BoardWriter,
    PolicyPort,
    QuestionPort,
    RecordPort,
    RoundsPort,
    StreamReader,
    StreamWriter,
)
from penstock.replay.sum_tree import SumTrees
from penstock.types import Array, Arrays

__all__ = ["CHECKPOINT_SLOTS", "STEP_LIMIT_S", "WORK_LIMIT_S", "Balance", "LaneStart", "Node", "Ports", "Timed"]

STEP_LIMIT_S = 0.05
"""Seconds that one call of ``step`` may take before it returns to the scheduler."""
WORK_LIMIT_S = 300.0
"""Longest time for work that a node announces: opening environments, compiling, a gradient step, a checkpoint."""
CHECKPOINT_SLOTS = 2
"""Checkpoints that may wait to be written."""

Shared = TypeVar("Shared")


class Node(Protocol):
    """A part of a program that does one job. It is made from its settings, a frozen dataclass of plain data."""

    def open(self, ports: "Ports") -> None:
        """Called once, in the process that runs the node."""
        ...

    def ready(self) -> bool:
        """True if ``step`` has work, and space for its output. Never blocks."""
        ...

    def step(self) -> None:
        """One bounded piece of work (at most about ``STEP_LIMIT_S``). Never waits."""
        ...

    def close(self) -> None:
        """Called once, also after an error."""
        ...


@runtime_checkable
class Timed(Protocol):
    """A `Node` that may become ready with time alone, without a ring of the bell."""

    def due(self) -> float:
        """When it becomes ready at the latest, in seconds of ``time.monotonic``. Infinity: only by a ring."""
        ...


class Balance(NamedTuple):
    """What became of every row of a run. At any instant ``collected`` is the sum of the other four."""

    collected: int
    """Rows that the lanes gave, counted by the environment nodes."""
    learned: int
    """Rows of committed updates."""
    in_flight: int
    """Rows that wait for the learner, or that it is learning from."""
    stale: int
    """Rows dropped because their policy was too old."""
    spoilt: int
    """Rows of rollouts that were dropped because they held NaN or infinity."""


class Ports(Protocol):
    """What a node gets when it opens: its ends of the program's edges, by the role that each edge plays for it.

    Unless the topology says otherwise (``NodeSpec.edges``), a role is played by the edge of that name.
    """

    name: str
    """The node's name: its identity, which survives a restart."""
    life: int
    """The number of this life of the node; never used again within a run."""
    former: tuple[int, ...]
    """The numbers of its earlier lives. Their slots were recovered; their commits stand."""

    def stream_writer(self, role: str) -> StreamWriter:
        """The writing end of a stream, or of this node's ring of a table."""
        ...

    def stream_reader(self, role: str) -> StreamReader:
        """The reading end of a stream."""
        ...

    def table(self, role: str) -> Table:
        """A table, for reading."""
        ...

    def priorities(self, role: str) -> SumTrees | None:
        """The priorities of a table's rows; ``None`` if all its rows are equally likely."""
        ...

    def board_writer(self, role: str) -> BoardWriter:
        """The writing end of a board."""
        ...

    def board_reader(self, role: str) -> BoardReader:
        """A reading end of a board."""
        ...

    def policy(self, role: str, first_lane: int, lanes: int) -> PolicyPort:
        """The asking end of an ask edge, for these lanes."""
        ...

    def questions(self, role: str) -> QuestionPort:
        """The answering end of an ask edge."""
        ...

    def record(self, role: str) -> RecordPort:
        """This node's end of a record. Its owner reads it in place; other nodes copy it."""
        ...

    def shared_object(self, role: str, make: Callable[[], Shared]) -> Shared:
        """The object that the nodes of this edge share in their process. The first one makes it."""
        ...

    def rounds(self, role: str) -> RoundsPort:
        """This node's end of rounds."""
        ...

    def shared(self, role: str) -> Arrays:
        """Arrays that several nodes change in place, without locks: zeros at the beginning of a run."""
        ...

    def action_log(self, role: str) -> ActionLogPort:
        """The action log of one node's lanes."""
        ...

    def busy(self, name: str, limit_s: float) -> AbstractContextManager[None]:
        """Marks work that cannot be interrupted. The supervisor counts the node as alive until the limit."""
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Names a part of this node's work in the run's trace. Costs next to nothing if no trace is kept.

        For parts of 50 us or more. The ``with`` block may stay open from one ``step`` to a later one.
        """
        ...

    def sign(self) -> memoryview:
        """An int64 whose changes count as signs of life. For loops in which a call would cost too much."""
        ...

    def count(self, counter: str, amount: int = 1) -> None:
        """Add to one of this node's counters in shared memory."""
        ...

    def note(self, counter: str, value: int) -> None:
        """Set one of this node's counters. The next life of the node must set it to the same value."""
        ...

    def counters(self) -> dict[str, dict[str, int]]:
        """The counters of every node: node -> counter -> value."""
        ...

    def balance(self) -> Balance | None:
        """What became of every row, at one instant; ``None`` where rollouts are not committed by rows."""
        ...

    def stopping(self) -> bool:
        """True once the run is to end. The node finishes its work and begins nothing new."""
        ...

    def interrupted(self) -> bool:
        """True once Ctrl-C or a signal is the reason why the run is to end."""
        ...

    def checkpoints_wanted(self) -> int:
        """Number of requests for a checkpoint so far. Those that settings make due do not count."""
        ...

    def finished(self) -> None:
        """Tell that this node will never have work again. A run ends once all nodes that it waits for have told so."""
        ...


@dataclass(frozen=True)
class LaneStart:
    """Where a lane begins when the run starts or is resumed."""

    episode: int = 0
    step: int = 0
    """Steps that the lane has taken in the whole run. They key its noise."""
    rollout: int = 0
    """Rollouts that the lane has given in the whole run. In lock step, the version that its next rollout waits for."""
    position: Position | None = None
    """Where the lane was in its episode; ``None``: it begins an episode."""
    collected: int = 0
    """Rows that the lane has given in the whole run."""
    spoilt: int = 0
    """How many of them were dropped because of NaN or infinity."""
    actions: Array | None = None
    """``[n, ...]``: the lane's actions from ``base`` to that position, in the policy's units."""
    base: Snapshot | None = None
    """The snapshot from which those actions go on; ``None``: the episode's reset."""
    carry: Arrays = field(default_factory=dict)
    """Name -> the lane's carry at that position; empty for a policy without memory."""
