"""THE contract of the exchange between several learners: what ``gradient_exchange/`` gives. Knows no algorithm.

Each rule of exchange gives a `Team`, or `Members` for a stream. It is also an `Exchange` or a `HandOn`.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from penstock.errors import PenstockError
from penstock.types import Array, Arrays
from penstock.updates.contract import Stateful, Updater

__all__ = [
    "DissolvedError",
    "Exchange",
    "HandOn",
    "Members",
    "RankTeam",
    "ShardTeam",
    "StreamTeam",
    "Team",
]


class DissolvedError(PenstockError):
    """A learner on another machine is lost, and no round goes on: all learners give up the batch and meet anew."""


class Exchange(Protocol):
    """How several learners agree on a gradient. Called once for each phase that has one, before the step."""

    def mean(self, arrays: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The exact weighted mean of a few float32 over all learners, such as moments of advantages."""
        ...

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The gradient that all learners step down; valid until the next call.

        Args:
            phase: name of the phase.
            gradients: network -> float32 ``[n]``: the mean over this learner's minibatch.
            weight: sum of the minibatch's ``weight``. The learners' means are averaged with these weights.
        """
        ...


class HandOn(Protocol):
    """Takes the gradients of a learner that does not apply them itself. Called once for each phase that has some."""

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> object:
        """Copy ``gradients``.

        Args:
            phase: name of the phase.
            gradients: network -> float32 ``[n]``: the mean over this learner's minibatch.
            weight: sum of the minibatch's ``weight``.
        """
        ...


class Members(Exchange, Protocol):
    """What a learner from a stream knows of the others. All take the gradient steps of a batch together.

    The keeper is the learner that commits. It alone admits others, and only between two batches.
    """

    def enter(self, state: Mapping[str, Array]) -> Arrays | None:
        """Try to become a member.

        Args:
            state: the state with which this learner would begin.

        Returns:
            The state with which it begins. ``None``: it has to wait; call this again.
        """
        ...

    def admit(self, state: Mapping[str, Array]) -> None:
        """Make members of the learners that wait. They begin with ``state``. Only for the keeper."""
        ...

    def settle(self, updater: Updater) -> None:
        """End a batch together: wait for all, and change the state as all have agreed on."""
        ...

    def sent(self) -> int:
        """Bytes that this learner has sent to others since the last call, to agree on steps."""
        ...

    def lost(self) -> bool:
        """True once the keeper has gone. What was learned since its last commit counts for nothing."""
        ...

    def leave(self) -> None:
        """Leave. The others go on without this learner."""
        ...


class Team(Protocol):
    """What a learner knows of the others: when it may go on. It is also an ``Exchange`` or a ``HandOn``."""

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Join the team, before the first gradient step. Waits for the other learners.

        Args:
            state: the state with which this learner would begin.

        Returns:
            The state with which it begins. ``None``: the run is to end.
        """
        ...

    def begin(self, updater: Stateful) -> bool:
        """True if the next gradient step may begin now. May let newcomers join, and give the updater a newer state."""
        ...

    def sent(self) -> int:
        """Bytes of gradients that this learner has sent since the last call."""
        ...

    def end(self) -> None:
        """Tell that a gradient step has ended."""
        ...

    def leave(self) -> None:
        """Leave the team. The others go on without this learner."""
        ...


@runtime_checkable
class ShardTeam(Team, Protocol):
    """The `Team` of learners that sample each minibatch together, each its part from its own shard of a table."""

    def weigh(self, factor: float) -> None:
        """Let this learner's gradients count by this factor in the means of the next gradient step.

        Args:
            factor: see `penstock.replay.shards.factor`. Only the ratios of all learners' factors matter.
        """
        ...

    def gather(self, values: Array) -> list[Array]:
        """What each learner brings: float64 ``[n]``, in the order of the learners."""
        ...

    def lost(self) -> bool:
        """True once the keeper has gone, or on several machines any learner."""
        ...

    def meeting(self) -> int:
        """The number of the present meeting; 0 on one machine.

        Learners on several machines meet anew, under another number, whenever one of them was lost or has left.
        """
        ...

    def settle(self, updater: Stateful) -> None:
        """End a turn together: wait until all have learned from all minibatches of the turn."""
        ...


@runtime_checkable
class RankTeam(Team, Protocol):
    """The `Team` of a learner that may sample a copy of the table: others hear of the priorities that it gives."""

    def ranked(self, rows: Array, stamps: Array, priorities: Array) -> None:
        """Tell which priorities the rows of the present step have got.

        Args:
            rows: flat rows of the table, int64 ``[m]``.
            stamps: the sequences of their slots, int64 ``[m]``.
            priorities: to the power alpha, float64 ``[m]``.
        """
        ...


class StreamTeam(Team, Protocol):
    """The `Team` of a learner that computes gradients on rollouts of a stream."""

    def watch(self, arrays: Arrays) -> None:
        """Whenever newer parameters are taken, also read these arrays of board ``parameters``, of the same version."""
        ...

    def in_flight(self) -> bool:
        """True while gradients that this learner or an earlier life of it has handed on are not settled."""
        ...

    def found(self) -> dict[str, float]:
        """The metrics of the step that has begun. They are handed on with it."""
        ...

    def tell(self, name: str, value: Array | float) -> None:
        """Add a field to the slot of the present step. Some fields are in every slot."""
        ...
