"""THE contract of a node: what a scheduler may call, and what a node may use while it runs."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.memory.action_log import Position, RolloutLog
from penstock.memory.record import Committed
from penstock.memory.rounds import Rounds
from penstock.memory.table import Table
from penstock.types import Array, Arrays, Question

__all__ = [
    "ActionLogPort",
    "Balance",
    "BoardReader",
    "BoardWriter",
    "LaneStart",
    "Node",
    "PolicyPort",
    "Ports",
    "QuestionPort",
    "RecordPort",
    "StreamReader",
    "StreamWriter",
]


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

    def stream_writer(self, edge: str) -> "StreamWriter":
        """The writing end of a stream, or of this node's ring of a table."""
        ...

    def stream_reader(self, edge: str) -> "StreamReader":
        """The reading end of a stream."""
        ...

    def table(self, edge: str) -> Table:
        """A table, to be looked at."""
        ...

    def priorities(self, edge: str) -> Array | None:
        """The bytes of the tree that ranks a table's rows; ``None`` if they are not ranked."""
        ...

    def board_writer(self, edge: str) -> "BoardWriter":
        """The writing end of a board."""
        ...

    def board_reader(self, edge: str) -> "BoardReader":
        """A reading end of a board."""
        ...

    def policy(self, edge: str, first_lane: int, lanes: int) -> "PolicyPort":
        """The asking end of an ask edge, for these lanes."""
        ...

    def questions(self, edge: str) -> "QuestionPort":
        """The answering end of an ask edge, for this node's share of the askers."""
        ...

    def record(self, edge: str) -> "RecordPort":
        """The owner's end of a record."""
        ...

    def rounds(self, edge: str) -> Rounds:
        """This node's end of rounds."""
        ...

    def action_log(self, edge: str) -> "ActionLogPort":
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


class StreamWriter(Protocol):
    """The writing end of a stream."""

    slots: int
    """How many slots the stream has."""

    def free(self) -> int:
        """How many slots are free now."""
        ...

    def claim(self, sequence: int) -> int | None:
        """A free slot as this node's own, or ``None`` (the reader has to free one first)."""
        ...

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot, as views: written in place."""
        ...

    def push(self, index: int) -> None:
        """Hand the slot to the readers and ring their bells."""
        ...

    def written(self) -> dict[int, int]:
        """Sequence -> slot of what any writer has pushed and no reader has released; look twice, readers go on."""
        ...


class StreamReader(Protocol):
    """The reading end of a stream."""

    arrays: Arrays
    """Field -> ``[slots, ...]``: all slots as one array, so that a minibatch is one gather."""

    def ready(self) -> int:
        """How many slots are waiting."""
        ...

    def take(self) -> int | None:
        """A waiting slot as this node's own, oldest first for each writer, or ``None``."""
        ...

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot, as views."""
        ...

    def sequence(self, index: int) -> int:
        """The sequence that the writer claimed the slot with."""
        ...

    def release(self, index: int) -> None:
        """Give the slot back to the writers and ring their bells."""
        ...

    def release_consumed(self, sequences: Sequence[int]) -> int:
        """Give back the slots with these sequences, which an earlier life has used up; how many there were."""
        ...

    def returned(self) -> list[int]:
        """The slots that earlier lives of this node were reading; they wait again."""
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
    """Version of the parameters that answer now; -1 before the first."""
    environment_action: Array
    """``[lanes, ...]``: the last answer's actions in the environment's own units and dtype."""

    def fresh(self, turn: int) -> bool:
        """True if a version is published that is new enough for this turn, by the board's ``max_lag``."""
        ...

    def refresh(self) -> None:
        """Answer with the latest published parameters from here on."""
        ...

    def bind(self, rows: Arrays) -> int:
        """Announce the arrays of a slot, ``[T + 1, lanes, ...]`` each, and get a handle to ask about its rows."""
        ...

    def unbind(self, handle: int) -> None:
        """Nobody will ask by this handle again."""
        ...

    def ask(self, handle: int, row: int, step: int) -> None:
        """Ask for all outputs of ``act`` for one row, written in place. ``step``, the lanes' count, keys the noise.

        A port that may answer with a later version than ``version`` writes the row's ``policy_version`` as well.
        """
        ...

    def ask_value(self, obs: Mapping[str, Array], value: Array) -> None:
        """Ask for the value alone of ``n`` observations ``[n, ...]``, written into ``value`` ``[n]``."""
        ...

    def answered(self) -> bool:
        """True once the last question is answered."""
        ...


class QuestionPort(Protocol):
    """The answering end of an ask edge."""

    arrays: Arrays
    """Field -> ``[slots, ...]``: the slots that are asked about, to be read and answered in place."""

    def waiting(self) -> bool:
        """True if a question waits."""
        ...

    def take(self) -> list[Question]:
        """All questions that wait now, at most one of each asker, as this node's to answer."""
        ...

    def environment_action(self, asker: int) -> Array:
        """``[lanes, ...]``: where that asker looks for its actions in the environment's own units."""
        ...

    def answer(self, asker: int, version: int) -> None:
        """That asker's question is answered, by parameters of this version; ring its bell."""
        ...


class RecordPort(Protocol):
    """An end of a commit record. Who does not own it copies."""

    def current(self) -> Committed | None:
        """For the owner: what it, or an earlier life, committed last, as views; ``None`` before the first commit."""
        ...

    def copy(self) -> Committed | None:
        """A copy for another node; ``None`` before the first commit, or if it was overwritten meanwhile."""
        ...

    def number(self) -> int:
        """Number of the current record, -1 before the first."""
        ...

    def begin(self) -> Arrays:
        """The arrays of the buffer that is not current, to be written whole."""
        ...

    def commit(self, number: int) -> None:
        """Make what was written current, by one release store."""
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


class ActionLogPort(Protocol):
    """The actions of lanes that are stepped together, since each lane's last reset."""

    def begin_episode(self, lane: int, episode: int, obs: Mapping[str, Array]) -> None:
        """An episode begins in ``lane``; its row of ``obs`` (field -> ``[lanes, ...]``) is the first observation."""
        ...

    def bind(self, action: Array, obs: Mapping[str, Array]) -> RolloutLog:
        """Announce the arrays of a rollout, ``[T + 1, lanes, ...]`` each; a vector step is then one ``append(t)``."""
        ...

    def append_lane(self, lane: int, action: Array, obs: Mapping[str, Array]) -> None:
        """One lane took ``action`` and observed its row of ``obs``: while its episode is restored."""
        ...

    def position(self, lane: int) -> Position:
        """Where a lane stands."""
        ...

    def positions(self, into: Array) -> None:
        """Write where each lane stands into ``into``, int64 ``[lanes, 4]``."""
        ...

    def rewind(self, lane: int, position: Position) -> None:
        """Go back to a position that an earlier life logged: what follows it is written anew."""
        ...

    def content(self, lane: int, position: Position) -> Array | None:
        """The actions of that episode up to that position, or ``None``: they are not all there (any more)."""
        ...
