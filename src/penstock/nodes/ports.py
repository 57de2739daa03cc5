"""The contracts of a node's ports, one an edge: what it may do with its end of a stream, a board, a policy, a record.

Tables and rounds are given as they are (`penstock.memory`).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.memory.action_log import Position, RolloutLog
from penstock.memory.record import Committed
from penstock.types import Array, Arrays, Question

__all__ = [
    "ActionLogPort",
    "BoardReader",
    "BoardWriter",
    "PolicyPort",
    "QuestionPort",
    "RecordPort",
    "StreamReader",
    "StreamWriter",
]


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

    def fresh(self, rollout: int) -> bool:
        """True if a version is there that is new enough for this rollout of its reader, by the edge's ``max_lag``."""
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
    stacks: Arrays
    """Field -> ``[lanes, ...]``: where the asker puts the observations that it will ask about, of those fields of which
    rows keep one frame only."""

    def fresh(self, rollout: int) -> bool:
        """True if a version is published that is new enough to begin this rollout with, by the board's ``max_lag``."""
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

    def stacks(self, asker: int) -> Arrays:
        """Field -> ``[lanes, ...]``: that asker's observations, of those fields of which rows keep one frame only."""
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
