"""The contracts of a node's ports: its ends of streams, boards, rounds, ask edges, records and action logs.

Nodes know these contracts only; ``wiring/ports.py`` hands out what fulfils them. A node with an end of a table gets an
object of `penstock.memory`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.memory.action_log import Past, Position, RolloutLog
from penstock.memory.record import Committed
from penstock.memory.rounds import Joined
from penstock.memory.snapshots import Snapshot
from penstock.types import Array, Arrays, Question

__all__ = [
    "ActionLogPort",
    "BoardReader",
    "BoardWriter",
    "PolicyPort",
    "QuestionPort",
    "RecordPort",
    "RoundsPort",
    "StreamReader",
    "StreamWriter",
    "Transport",
]


class StreamWriter(Protocol):
    """The writing end of a stream."""

    slots: int
    """How many slots the stream has."""

    def free(self) -> int:
        """Number of free slots."""
        ...

    def claim(self, sequence: int) -> int | None:
        """Take a free slot; ``None`` if the reader has to free one first."""
        ...

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot, as views, to be filled in place."""
        ...

    def push(self, index: int) -> None:
        """Hand the slot to the readers and ring their bells."""
        ...

    def written(self) -> dict[int, int]:
        """Sequence -> slot, of all slots that are pushed and not released.

        Readers may release slots meanwhile. So after reading slots call this again, and ignore slots that are released.
        """
        ...


class StreamReader(Protocol):
    """The reading end of a stream."""

    arrays: Arrays
    """Field -> ``[slots, ...]``: all slots as one array, so that a minibatch is one gather."""

    def ready(self) -> int:
        """Number of waiting slots."""
        ...

    def take(self) -> int | None:
        """Take a waiting slot, the oldest first for each writer; ``None`` if none is waiting."""
        ...

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot, as views."""
        ...

    def sequence(self, index: int) -> int:
        """The sequence with which the writer claimed the slot."""
        ...

    def release(self, index: int) -> None:
        """Give the slot back to the writers and ring their bells."""
        ...

    def written(self) -> dict[int, int]:
        """Sequence -> slot, of all slots that are pushed and not released. Writers go on meanwhile."""
        ...

    def release_consumed(self, sequences: Sequence[int]) -> int:
        """Release the slots with these sequences, which an earlier life of the reader has used up.

        Returns:
            How many of them were found.
        """
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

    def publication(self) -> int:
        """The number of the latest publication; 0 before the first. A version may come twice, with other values."""
        ...

    def fresh(self, rollout: int) -> bool:
        """True if the latest version is new enough for this rollout of the reader, by the edge's ``max_lag``."""
        ...

    def read(self, into: Mapping[str, Array]) -> int:
        """Copy the whole latest value into ``into``. Returns its version."""
        ...


class PolicyPort(Protocol):
    """Where a node asks for actions. The policy may run in this process or in another one; the node does not know."""

    version: int
    """Version of the parameters that answer now; -1 before the first version."""
    environment_action: Array
    """``[lanes, ...]``: the actions of the last answer, in the environment's own units and dtype."""
    stacks: Arrays
    """Field -> ``[lanes, ...]``, for fields that are stacks. The asker writes the stacks here before it asks, because
    rows keep only the newest frame."""
    carry: Arrays
    """Name -> ``[lanes, ...]``: the carry that the next answer begins with; empty for a policy without memory.

    The asker may change it between two answers. In lanes for which the row's field ``first`` is true, it counts as
    zero."""
    answers_at_once: bool
    """True if `answered` is true as soon as a question was asked."""

    def fresh(self, rollout: int) -> bool:
        """True if the latest version is new enough to begin this rollout, by the board's ``max_lag``."""
        ...

    def refresh(self) -> None:
        """Answer with the latest published parameters from now on."""
        ...

    def bind(self, rows: Arrays) -> int:
        """Announce the arrays of a slot, ``[T + 1, lanes, ...]`` each. Returns a handle for asking about its rows."""
        ...

    def unbind(self, handle: int) -> None:
        """Give a handle back. No further question may use it."""
        ...

    def ask(self, handle: int, row: int, step: int) -> None:
        """Ask for all outputs of ``act`` for one row. The answer is written in place.

        A port that may answer with a later version than ``version`` also writes the row's ``policy_version``.

        Args:
            handle: of the bound arrays.
            row: index of the row in these arrays.
            step: the lanes' step, which keys the noise.
        """
        ...

    def ask_value(self, given: Mapping[str, Array], value: Array) -> None:
        """Ask only for the values of ``n`` observations ``[n, ...]``, written into ``value`` ``[n]``.

        Args:
            given: the observation fields; for a policy with memory also ``first`` and the carry.
            value: a row's ``value``, or the first n of ``final_value``, of a slot that is bound.
        """
        ...

    def answered(self) -> bool:
        """True once the last question is answered."""
        ...


class QuestionPort(Protocol):
    """The answering end of an ask edge."""

    def rows(self, asker: int) -> Arrays:
        """Field -> ``[slots, ...]``: the slots that this asker's questions are about. Answers are written in place."""
        ...

    def waiting(self) -> bool:
        """True if a question is waiting."""
        ...

    def take(self) -> list[Question]:
        """Take all waiting questions, at most one of each asker."""
        ...

    def environment_action(self, asker: int) -> Array:
        """``[lanes, ...]``: where this asker reads its actions, in the environment's own units."""
        ...

    def stacks(self, asker: int) -> Arrays:
        """Field -> ``[lanes, ...]``: the stacks of this asker, for fields of which rows keep only the newest frame."""
        ...

    def carry(self, asker: int) -> Arrays:
        """Name -> ``[lanes, ...]``: the carry of this asker's lanes. The answerer only reads it."""
        ...

    def next_carry(self, asker: int) -> Arrays:
        """Name -> ``[lanes, ...]``: where the answer to a question about a row puts the carry that follows that row."""
        ...

    def answer(self, asker: int, version: int) -> None:
        """Tell this asker that its question is answered, by parameters of this version. Rings its bell."""
        ...


class RecordPort(Protocol):
    """An end of a commit record. Only the owner reads it in place; other nodes copy it."""

    def current(self) -> Committed | None:
        """For the owner: its last commit, or that of an earlier life, as views; ``None`` before the first commit."""
        ...

    def copy(self) -> Committed | None:
        """For another node: a copy. ``None`` before the first commit, or if it was overwritten while it was copied."""
        ...

    def number(self) -> int:
        """Number of the current record, -1 before the first."""
        ...

    def begin(self) -> Arrays:
        """The arrays of the buffer that is not current. The caller writes all of them."""
        ...

    def commit(self, number: int) -> None:
        """Make the written buffer current, by one release store."""
        ...


class Transport(Protocol):
    """Carries arrays between learners in rounds: one learner's end. Rules of exchange with rounds use nothing else.

    1. Each member sends what it brings to a round.
    2. It sleeps until the round is over.
    3. It receives what single members have sent, or takes the mean of what all have sent.

    Only ``sleep`` waits, and no longer than its limit. If a member is lost, either the others go on and ``took_part``
    lacks it, or ``over`` raises for all.
    """

    def send(self, arrays: Sequence[Array], weight: float, to: Sequence[int] | None = None) -> None:
        """Bring arrays to a round. Every member sends in each round, also if it exchanges arrays with some only.

        Args:
            arrays: float32, or bytes in multiples of 4. They may be changed as soon as this returns.
            weight: how much they count in ``mean``; at least 0.
            to: the members with which this one exchanges arrays; they name this one as well. ``None``: all members, and
                then all give ``None``.
        """
        ...

    def over(self) -> bool:
        """True once this member's last round is over: all arrays that it may receive in it have come.

        Raises:
            DissolvedError: a member is lost, and no round goes on without it.
        """
        ...

    def took_part(self) -> list[int]:
        """The members that took part in the last round, in order."""
        ...

    def receive(self, source: int, nbytes: int) -> tuple[float, Array]:
        """The weight and the first bytes, uint8 ``[nbytes]``, that a member has sent in the last round.

        Args:
            source: this member, or one that took part and with which it exchanges arrays.
            nbytes: at most as many as that member sent.
        """
        ...

    def mean(self, into: Sequence[Array]) -> None:
        """Write the weighted mean of what all have sent to all in the last round: the same bits for all members."""
        ...

    def word(self) -> int:
        """The number to pass to ``sleep``. Read it first, then check whether there is something to wait for."""
        ...

    def sleep(self, seen: int, timeout_s: float) -> None:
        """Sleep until a round ends, or a member joins or leaves, after ``word`` gave ``seen``."""
        ...


class RoundsPort(Transport, Protocol):
    """A transport, and who is a member of its rounds: joining, admitting newcomers, leaving.

    On one machine this is `penstock.memory.rounds.Rounds`, on several a process group.
    """

    def join(self, *, anew: bool) -> Joined:
        """Become a member, or ask to become one. While the result is ``WAITING``, call this again.

        Args:
            anew: if there is no member left, become one that goes on from its own state.
        """
        ...

    def read_state(self, into: Mapping[str, Array]) -> None:
        """Copy the state that this member got when it was admitted into ``into``."""
        ...

    def newcomer_waits(self) -> bool:
        """True if a newcomer waits for this member. Do not check it between rounds that belong together."""
        ...

    def admit(self, state: Mapping[str, Array]) -> None:
        """Admit the newcomers that wait. They go on from ``state``."""
        ...

    def round_has_begun(self) -> bool:
        """True if a member has brought something to the round that is not over yet."""
        ...

    def first_round_is_over(self) -> bool:
        """True once the first round is over."""
        ...

    def members(self) -> list[int]:
        """The indices of the present members."""
        ...

    def meeting(self) -> int:
        """The number of the present meeting of a process group, the same for all members; 0 on one machine."""
        ...

    def remove(self) -> None:
        """Leave. May be repeated."""
        ...


class ActionLogPort(Protocol):
    """The actions of lanes that are stepped together, since each lane's last reset."""

    def begin_episode(self, lane: int, episode: int, obs: Mapping[str, Array]) -> None:
        """Begin an episode in ``lane``. Its row of ``obs`` (field -> ``[lanes, ...]``) is the first observation."""
        ...

    def bind(self, action: Array, obs: Mapping[str, Array]) -> RolloutLog:
        """Announce the arrays of a rollout, ``[T + 1, lanes, ...]`` each. Then ``append(t)`` logs a vector step."""
        ...

    def append_lane(self, lane: int, action: Array, obs: Mapping[str, Array]) -> None:
        """Log one step of a lane whose episode is being restored: its action, and its row of ``obs``."""
        ...

    def position(self, lane: int) -> Position:
        """The current position of a lane."""
        ...

    def positions(self, into: Array) -> None:
        """Write the current position of each lane into ``into``, int64 ``[lanes, 4]``."""
        ...

    def rewind(self, lane: int, position: Position) -> None:
        """Go back to a position that an earlier life has logged. Later steps will be logged again."""
        ...

    def past(self, lane: int, position: Position) -> Past | None:
        """What restores the lane to that position; ``None`` if the log does not have all of it."""
        ...

    @property
    def snapshot_every(self) -> int:
        """Actions of an episode after which a snapshot is due."""
        ...

    @property
    def snapshot_bytes(self) -> int:
        """Bytes that a snapshot may have. 0: the log keeps no snapshots."""
        ...

    def add_snapshot(self, lane: int, snapshot: Snapshot) -> None:
        """Keep a snapshot of a lane's environment.

        Raises:
            ResourceError: it is larger than ``snapshot_bytes``.
        """
        ...

    def begin_at(self, lane: int, base: Snapshot) -> None:
        """Go on from a snapshot: the lane's environment has its state already."""
        ...

    def forget_snapshots(self, lane: int, position: Position) -> None:
        """Forget the snapshots from after ``position``, because the lane goes on from there."""
        ...

    def since(self, lane: int, before: Position, position: Position) -> Array | None:
        """The actions from one position to a later one of the same episode; ``None`` if the log lacks some."""
        ...
