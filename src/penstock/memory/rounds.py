"""Rounds: members bring a vector each, and all get the same weighted mean. Who dies is waited for no more.

A newcomer is let in between two rounds by the first of the members, which tells it the state that all of them share.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from penstock.memory import _native
from penstock.memory.board import Board
from penstock.types import Array, ArraySpec

__all__ = ["Joined", "Rounds"]


class Joined(IntEnum):
    """What an attempt to join has come to."""

    WAITING = 0
    """Asked; somebody has to let this member in."""
    FOUNDED = 1
    """A member from its own state on: nobody has gone further."""
    ADMITTED = 2
    """A member from the state on that it was told."""


class Rounds:
    """One member's end.

    Args:
        bytes: ``required(members, state)`` bytes, uint8, that start at a multiple of 64 and were zero at first.
        members: how many there may be, at most 12. The first round waits for all of them.
        state: what a newcomer is told.
        member: which of them this is.
    """

    def __init__(self, bytes: Array, members: int, state: Sequence[ArraySpec], member: int) -> None:  # noqa: A002
        floats = _floats(state)
        first = _native.Rounds.required(members, floats)
        self._rounds = _native.Rounds(bytes, members, floats, member)
        self._told = Board(bytes[first:], state)

    @staticmethod
    def required(members: int, state: Sequence[ArraySpec]) -> int:
        """Bytes that rounds of this kind take; pages that nobody brings anything on are never touched."""
        return _native.Rounds.required(members, _floats(state)) + Board.required(state)

    def join(self, *, anew: bool) -> Joined:
        """Become a member, or ask to: then sleep and look again.

        Args:
            anew: where all members have gone, go on from this one's own state.
        """
        return Joined(self._rounds.join(anew))

    def told(self, into: Mapping[str, Array]) -> None:
        """Copy the state that this member was told when it was let in into ``into``."""
        self._told.read(into)

    def asked(self) -> bool:
        """True if somebody waits to be let in by this member; to be looked at between two rounds that belong apart."""
        return self._rounds.asked()

    def admit(self, state: Mapping[str, Array]) -> None:
        """Let in who waits, from this state on."""
        self._told.publish(state, 0)
        self._rounds.admit()

    def arrive(self, arrays: Sequence[Array], weight: float) -> None:
        """Bring arrays to a round; float32, altogether no more than the state has.

        Raises:
            PenstockError: not a member, or arrived already.
        """
        self._rounds.arrive(arrays, weight)

    def begun(self) -> bool:
        """True if somebody has arrived at the round that is not over yet."""
        return self._rounds.begun()

    def over(self) -> bool:
        """True once all members have arrived at the round where this one last did."""
        return self._rounds.over()

    def mean(self, into: Sequence[Array]) -> None:
        """Write the weighted mean of what was brought to the last round into ``into``: the same bits for all."""
        self._rounds.mean(into)

    def word(self) -> int:
        """To be read before looking whether there is something to wait for."""
        return self._rounds.word()

    def sleep(self, seen: int, timeout_s: float, spin_s: float = 0.0) -> None:
        """Until somebody ends a round, joins or leaves after ``word`` gave ``seen``; never longer than 0.1 s."""
        self._rounds.sleep(seen, timeout_s, spin_s)

    def members(self) -> list[int]:
        """Who they are now."""
        found = self._rounds.members()
        return [member for member in range(found.bit_length()) if found >> member & 1]

    def remove(self) -> None:
        """Leave; or, for a member that was killed and reaped: it is waited for no more. May be repeated."""
        self._rounds.remove()


def _floats(state: Sequence[ArraySpec]) -> int:
    return sum(spec.size for spec in state if spec.dtype == "float32")
