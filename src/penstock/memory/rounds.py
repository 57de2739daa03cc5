"""Rounds: each member brings a vector, and all get the same weighted mean. A round does not wait for dead members.

A newcomer joins between two rounds. The first of the members admits it and gives it the state that all members share.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from penstock.memory import _native
from penstock.memory.board import Board
from penstock.types import Array, ArraySpec

__all__ = ["MOST_MEMBERS", "Joined", "Rounds"]

MOST_MEMBERS = 12
"""``Standing::most`` of the native code."""


class Joined(IntEnum):
    """Result of an attempt to join."""

    WAITING = 0
    """Not a member yet: a member has to admit this one."""
    FOUNDED = 1
    """A member, which goes on from its own state."""
    ADMITTED = 2
    """A member, which goes on from the state of the others (`Rounds.read_state`)."""


class Rounds:
    """One member's end.

    Args:
        bytes: ``required(members, state)`` bytes, uint8, that start at a multiple of 64 and were zero at first.
        members: largest number of members, at most `MOST_MEMBERS`. The first round waits for all of them.
        state: arrays of the state that a newcomer gets.
        member: index of this member.
    """

    def __init__(self, bytes: Array, members: int, state: Sequence[ArraySpec], member: int) -> None:  # noqa: A002
        floats = _floats(state)
        first = _native.Rounds.required(members, floats)
        self._rounds = _native.Rounds(bytes, members, floats, member)
        self._told = Board(bytes[first:], state)

    @staticmethod
    def required(members: int, state: Sequence[ArraySpec]) -> int:
        """Bytes that such rounds take. Pages that no member uses are never touched."""
        return _native.Rounds.required(members, _floats(state)) + Board.required(state)

    def join(self, *, anew: bool) -> Joined:
        """Become a member, or ask to become one. While the result is ``WAITING``, sleep and call this again.

        Args:
            anew: if there is no member left, become one that goes on from its own state.
        """
        return Joined(self._rounds.join(anew))

    def read_state(self, into: Mapping[str, Array]) -> None:
        """Copy the state that this member got when it was admitted into ``into``."""
        self._told.read(into)

    def newcomer_waits(self) -> bool:
        """True if a newcomer waits for this member. Do not check it between rounds that belong together."""
        return self._rounds.asked()

    def admit(self, state: Mapping[str, Array]) -> None:
        """Admit the newcomers that wait. They go on from ``state``."""
        self._told.publish(state, 0)
        self._rounds.admit()

    def send(self, arrays: Sequence[Array], weight: float, to: Sequence[int] | None = None) -> None:
        """Bring float32 arrays to a round. Together they have at most as many float32 elements as the state.

        Args:
            arrays: they are copied into shared memory once, where all members read them.
            weight: how much they count.
            to: makes no difference here.

        Raises:
            PenstockError: this is not a member, or it has already brought some.
        """
        del to
        self._rounds.arrive(arrays, weight)

    def round_has_begun(self) -> bool:
        """True if a member has brought something to the round that is not over yet."""
        return self._rounds.begun()

    def first_round_is_over(self) -> bool:
        """True once the first round is over. From then on, members are admitted by others."""
        return self._rounds.founded()

    def over(self) -> bool:
        """True once all members have brought what they bring to the last round of this member."""
        return self._rounds.over()

    def took_part(self) -> list[int]:
        """The members that took part in the last round, in order."""
        return [member for member, weight in enumerate(self._rounds.weights()) if weight >= 0.0]

    def receive(self, source: int, nbytes: int) -> tuple[float, Array]:
        """The weight and the first bytes, uint8 ``[nbytes]``, that a member has brought to the last round."""
        payload = np.empty(nbytes, np.uint8)
        self._rounds.brought(source, payload)
        return self._rounds.weights()[source], payload

    def mean(self, into: Sequence[Array]) -> None:
        """Write the weighted mean of the last round's arrays into ``into``: the same bits for all members."""
        self._rounds.mean(into)

    def word(self) -> int:
        """The word to pass to ``sleep``. Read it before checking whether there is something to wait for."""
        return self._rounds.word()

    def sleep(self, seen: int, timeout_s: float, spin_s: float = 0.0) -> None:
        """Sleep until a round ends, or a member joins or leaves, after ``word`` gave ``seen``. At most 0.1 s."""
        self._rounds.sleep(seen, timeout_s, spin_s)

    def members(self) -> list[int]:
        """The indices of the present members."""
        found = self._rounds.members()
        return [member for member in range(found.bit_length()) if found >> member & 1]

    def meeting(self) -> int:
        """0: these rounds go on without members that are lost."""
        return 0

    def remove(self) -> None:
        """Leave. Or remove a member that was killed and reaped: no round waits for it any more. May be repeated."""
        self._rounds.remove()


def _floats(state: Sequence[ArraySpec]) -> int:
    return sum(spec.size for spec in state if spec.dtype == "float32")
