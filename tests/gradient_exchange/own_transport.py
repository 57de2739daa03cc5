"""A transport of a user's own: one queue from each learner to each other one, in one process."""

import time
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue

import numpy as np

from penstock.memory.rounds import Joined

__all__ = ["OwnStream", "QueueRounds"]


class QueueRounds:
    """One member's end; implements `penstock.nodes.ports.RoundsPort`. All members are there from the beginning.

    Args:
        queues: (from, to) -> the queue between two members.
        members: their number.
        me: index of this member.
    """

    def __init__(self, queues: Mapping[tuple[int, int], SimpleQueue], members: int, me: int) -> None:
        self._queues = queues
        self._count = members
        self._me = me
        self._brought: dict[int, tuple[float, np.ndarray]] = {}
        self._missing: set[int] = set()

    def send(self, arrays: Sequence[np.ndarray], weight: float, to: Sequence[int] | None = None) -> None:
        others = set(range(self._count) if to is None else to) - {self._me}
        payload = np.concatenate([np.zeros(0, np.uint8), *(values.reshape(-1).view(np.uint8) for values in arrays)])
        for member in others:
            self._queues[self._me, member].put((weight, payload))
        self._brought, self._missing = {self._me: (weight, payload)}, others

    def over(self) -> bool:
        for member in list(self._missing):
            try:
                self._brought[member] = self._queues[member, self._me].get_nowait()
            except Empty:
                continue
            self._missing.remove(member)
        return not self._missing

    def took_part(self) -> list[int]:
        return list(range(self._count))

    def receive(self, source: int, nbytes: int) -> tuple[float, np.ndarray]:
        weight, payload = self._brought[source]
        return weight, payload[:nbytes]

    def mean(self, into: Sequence[np.ndarray]) -> None:
        brought = [self._brought[member] for member in range(self._count)]
        weights = [weight for weight, _ in brought]
        first = 0
        for values in into:
            parts = [payload[first : first + values.nbytes].view(np.float32) for _, payload in brought]
            values[...] = np.average(parts, axis=0, weights=weights).reshape(values.shape)
            first += values.nbytes

    def word(self) -> int:
        return 0

    def sleep(self, seen: int, timeout_s: float) -> None:
        del seen
        time.sleep(min(timeout_s, 0.001))

    def join(self, *, anew: bool) -> Joined:
        del anew
        return Joined.FOUNDED

    def read_state(self, into: Mapping[str, np.ndarray]) -> None:
        raise NotImplementedError

    def newcomer_waits(self) -> bool:
        return False

    def admit(self, state: Mapping[str, np.ndarray]) -> None:
        raise NotImplementedError

    def round_has_begun(self) -> bool:
        return bool(self._missing)

    def first_round_is_over(self) -> bool:
        return True

    def members(self) -> list[int]:
        return list(range(self._count))

    def meeting(self) -> int:
        return 0

    def remove(self) -> None:
        """Nobody waits for a member that has left, because all leave at the end."""


class OwnStream:
    """Slots as arrays of one process: implements `penstock.nodes.ports.StreamWriter`, and hands them to one reader."""

    def __init__(self, slots: Sequence[Mapping[str, np.ndarray]]) -> None:
        self.slots = len(slots)
        self._arrays = [dict(slot) for slot in slots]
        self._claimed: dict[int, int] = {}
        self._pushed: dict[int, int] = {}

    def free(self) -> int:
        return self.slots - len(self._claimed) - len(self._pushed)

    def claim(self, sequence: int) -> int | None:
        taken = {*self._claimed, *self._pushed}
        index = next((place for place in range(self.slots) if place not in taken), None)
        if index is not None:
            self._claimed[index] = sequence
        return index

    def slot(self, index: int) -> dict[str, np.ndarray]:
        return self._arrays[index]

    def push(self, index: int) -> None:
        self._pushed[index] = self._claimed.pop(index)

    def written(self) -> dict[int, int]:
        return {sequence: index for index, sequence in self._pushed.items()}
