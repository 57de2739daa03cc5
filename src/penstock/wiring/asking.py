"""Both ends of an ask edge that nodes answer: the asker's end, which is a policy port, and the answerer's end.

A question is a handful of numbers in the asker's own slot (`questions.py`): they say where the rows lie. The answerer
reads observations and writes answers in place, in the slots of the askers' streams. Neither end computes anything.
"""

import struct
from collections.abc import Callable, Mapping, Sequence

from penstock.errors import FencedError
from penstock.nodes.ports import BoardReader
from penstock.types import Array, Arrays, Question, Wanted
from penstock.wiring.questions import QUESTION_WORDS, QuestionSlot

__all__ = ["AnsweringEnd", "AskingEnd"]

_WORDS = struct.Struct(f"={QUESTION_WORDS}q")
"""The fields of a `Question` from ``wanted`` on. One call packs them all; to set array elements takes several times as
long."""


class AskingEnd:
    """Implements `penstock.nodes.ports.PolicyPort` for lanes from ``first_lane`` on. Another node answers."""

    answers_at_once = False

    def __init__(
        self,
        slots: Sequence[QuestionSlot],
        arrays: Arrays,
        board: BoardReader,
        *,
        first_lane: int,
        choose: Callable[[], int],
        wakes: Sequence[Callable[[], None]],
    ) -> None:
        """Claim the asker's slots.

        Args:
            slots: of the asker, one for each answerer.
            arrays: field -> ``[slots, ...]``, of the stream that the asker writes.
            board: with the published parameters, which the answerers use.
            first_lane: global number of the asker's first lane.
            choose: returns the index of the answerer that answers until the next refresh.
            wakes: one for each answerer; rings its bell.

        Raises:
            FencedError: a question of an earlier life is still open, because that life was not recovered.
        """
        self.version = -1
        own = slots[0]
        self.environment_action = own.arrays["environment_action"]
        self.stacks = own.stacks
        self.carry = own.carry
        self._version = own.arrays["version"]
        self._words = own.arrays["question"].data
        self._next_carry = own.next_carry
        self._slots = tuple(slots)
        self._arrays = arrays
        self._board = board
        self._first_lane = first_lane
        self._choose = choose
        self._wakes = tuple(wakes)
        self._slot, self._wake = slots[0], wakes[0]
        self._refresh = True
        # A rollout asks about rows 0 .. T - 1, and then about the values of row T if rows have values.
        self._last_row = arrays["action"].shape[1] - (1 if "value" in arrays else 2)
        self._number = 0
        self._open = False
        self._asked_row = False
        if not all(slot.claim(self._number) for slot in self._slots):
            raise FencedError(f"a question about lane {first_lane} is still open, of a life that was not recovered")

    def fresh(self, rollout: int) -> bool:
        """True if a version is published that is new enough to begin this rollout with."""
        return self._board.fresh(rollout)

    def refresh(self) -> None:
        """Let the next question be answered with the latest parameters, and later questions with the same ones.

        One answerer answers all of them, because it keeps that version. It is chosen when the next question is asked.
        """
        self._refresh = True

    def bind(self, rows: Arrays) -> int:
        """The handle of a slot is its index.

        Raises:
            ValueError: these are not the arrays of a slot of the stream.
        """
        return _place(rows["action"], self._arrays["action"])[0]

    def unbind(self, handle: int) -> None:
        """Nothing is held for a handle."""

    def ask(self, handle: int, row: int, step: int) -> None:
        """Ask for one row."""
        self._ask(Wanted.ROW, handle, row, 0, step, again=row < self._last_row)

    def ask_value(self, given: Mapping[str, Array], value: Array) -> None:
        """Ask for the values of a whole row, or of the first few last observations.

        The answerer reads the carry of a row from the asker's slot, and the carry of last observations beside them.

        Raises:
            ValueError: ``value`` lies in no slot of the stream, or an observation does not lie beside it there.
        """
        finals = not _within(value, self._arrays["value"])
        slot, row = _place(value, self._arrays["final_value" if finals else "value"])
        for name, values in given.items():
            if name == "first" or (name in self.carry and not finals):
                continue
            if _place(values, self._arrays[f"final.{name}" if finals else name]) != (slot, row):
                raise ValueError(f"{name} and the value that is asked for lie in different places")
        again = not finals and int(self._arrays["final_count"][slot]) > 0
        self._ask(Wanted.FINAL_VALUE if finals else Wanted.VALUE, slot, row, len(value), 0, again=again)

    def answered(self) -> bool:
        """True once the last question is answered. The claim acquires the answer; see `questions.py`."""
        if self._open and self._slot.claim(self._number):
            self._open = False
            self.version = self._version.item()
            if self._asked_row:
                # Only now: an answerer that is asked again after a death must find the carry of the first time.
                for name, values in self._next_carry.items():
                    self.carry[name][...] = values
        return not self._open

    def _ask(self, wanted: Wanted, slot: int, row: int, finals: int, step: int, *, again: bool) -> None:
        if self._open:
            raise ValueError("asked again before the last question was answered")
        if self._refresh:
            chosen = self._choose()
            self._slot, self._wake = self._slots[chosen], self._wakes[chosen]
        _WORDS.pack_into(self._words, 0, wanted, self._refresh, again, slot, row, finals, step, self._first_lane)
        self._slot.push()
        self._refresh = False
        self._open = True
        self._asked_row = wanted == Wanted.ROW
        self._number += 1
        self._wake()


class AnsweringEnd:
    """Implements `penstock.nodes.ports.QuestionPort` for the askers of one answerer."""

    def __init__(
        self,
        slots: Sequence[QuestionSlot],
        arrays: Sequence[Arrays],
        wakes: Sequence[Callable[[], None]],
        count: Callable[[], None],
    ) -> None:
        """Take the answering end of some slots.

        Args:
            slots: one for each asker.
            arrays: for each asker, field -> ``[slots, ...]``, of the stream that it writes.
            wakes: one for each asker; rings its bell.
            count: called once for each answer.
        """
        self._count = count
        self._arrays = tuple(arrays)
        self._slots = tuple(slots)
        self._wakes = tuple(wakes)

    def waiting(self) -> bool:
        """True if a question waits."""
        return any(slot.waiting() for slot in self._slots)

    def take(self) -> list[Question]:
        """All questions that wait now."""
        return [self._read(asker, slot) for asker, slot in enumerate(self._slots) if slot.take()]

    def rows(self, asker: int) -> Arrays:
        """The slots with the rows of that asker."""
        return self._arrays[asker]

    def environment_action(self, asker: int) -> Array:
        """The array from which that asker reads its actions."""
        return self._slots[asker].arrays["environment_action"]

    def stacks(self, asker: int) -> Arrays:
        """That asker's stacked observations. Rows keep only one frame of them."""
        return self._slots[asker].stacks

    def carry(self, asker: int) -> Arrays:
        """The carry of that asker's lanes."""
        return self._slots[asker].carry

    def next_carry(self, asker: int) -> Arrays:
        """Where an answer about a row of that asker puts the carry."""
        return self._slots[asker].next_carry

    def answer(self, asker: int, version: int) -> None:
        """Give the answered question back to its asker."""
        slot = self._slots[asker]
        slot.arrays["version"][...] = version
        slot.release()
        self._count()
        self._wakes[asker]()

    @staticmethod
    def _read(asker: int, slot: QuestionSlot) -> Question:
        wanted, refresh, again, *numbers = _WORDS.unpack_from(slot.arrays["question"].data)
        return Question(asker, wanted, bool(refresh), bool(again), *numbers)


def _offset(part: Array, whole: Array) -> int:
    address, base = (array.__array_interface__["data"][0] for array in (part, whole))
    return int(address - base)


def _within(part: Array, whole: Array) -> bool:
    return 0 <= _offset(part, whole) < whole.nbytes


def _place(part: Array, whole: Array) -> tuple[int, int]:
    """Slot and row at which ``part`` begins in ``whole``, ``[slots, rows, ...]``."""
    if not _within(part, whole):
        raise ValueError("a question about arrays that lie in no slot of the askers' stream")
    slot, rest = divmod(_offset(part, whole), whole.strides[0])
    row, rest = divmod(rest, whole.strides[1])
    if rest:
        raise ValueError("a question about arrays that begin within a row")
    return slot, row
