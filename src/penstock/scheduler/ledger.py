"""What became of every transition, read from where it is true: the slots' words and payloads, and the commit record.

    collected = learned + in flight + stale + spoilt

No count of it can be left behind by a death. A lane's rows are counted in the slot that carries them, and are collected
once one compare-and-swap has handed that over; what is learned or dropped stands in the commit record, and is so once
one release store has made that current. It takes no lock and changes nothing.
"""

from collections.abc import Iterable

import numpy as np

from penstock.memory.record import Record as RecordMemory
from penstock.memory.stream import Stream as StreamMemory
from penstock.node import Balance
from penstock.program.graph import Record, Stream
from penstock.scheduler.wiring import Wiring
from penstock.types import Arrays

__all__ = ["Ledger", "ledger"]

_BY_LANE = ("lane_collected", "lane_spoilt")


def ledger(wiring: Wiring) -> "Ledger | None":
    """The ledger of a run; ``None`` where no record says which rollouts were used up."""
    records = [wiring.record(edge.name) for edge in wiring.edges() if isinstance(edge, Record) and _counts(edge)]
    rollouts = [memory for edge, memory in wiring.streams() if _counts(edge)]
    return Ledger(rollouts[0], records[0]) if records and rollouts else None


def _counts(edge: Stream | Record) -> bool:
    return {*_BY_LANE, "consumed_sequence" if isinstance(edge, Record) else "valid"} <= {a.name for a in edge.arrays}


class Ledger:
    """Reads the balance of a stream of rollouts and the record that says which were used up."""

    def __init__(self, rollouts: StreamMemory, record: RecordMemory) -> None:
        self._rollouts = rollouts
        self._record = record

    def balance(self) -> Balance:
        """The balance of one instant; looks again until nothing was committed or handed over while it looked.

        Race: everybody goes on meanwhile. But a slot is freed only after the commit that names it. So while one record
        is current, what was handed over and is not used up only grows; where two looks found the same, it was so at
        every instant between them, and the payloads that were read between them stood still.
        """
        while True:
            committed = self._record.copy()
            if committed is None:
                if self._record.number() < 0:
                    # Nothing is collected before the first policy is published, nor that before it is committed.
                    return Balance(0, 0, 0, 0, 0)
                continue
            waiting = self._waiting(committed.arrays)
            found = self._add_up(committed.arrays, waiting.values())
            if waiting == self._waiting(committed.arrays) and committed.number == self._record.number():
                return found

    def returned(self, owner: int) -> int:
        """Rows that a reader was learning from when it died and that nobody has taken since; they are in flight."""
        slots = self._rollouts.returned((owner,))
        used = self._used(committed.arrays) if (committed := self._record.copy()) else set()
        return sum(self._rows(slot) for slot in slots if self._rollouts.sequence(slot) not in used)

    def _waiting(self, record: Arrays) -> dict[int, int]:
        """Sequence -> slot of what was handed over and is not used up."""
        used = self._used(record)
        return {sequence: slot for sequence, slot in self._rollouts.written().items() if sequence not in used}

    @staticmethod
    def _used(record: Arrays) -> set[int]:
        return set(record["consumed_sequence"][record["consumed_slot"] >= 0].tolist())

    def _add_up(self, record: Arrays, waiting: Iterable[int]) -> Balance:
        collected, spoilt = (record[name].copy() for name in _BY_LANE)
        in_flight = 0
        for index in waiting:
            slot = self._rollouts.slot(index)
            first, lanes = int(slot["first_lane"]), len(slot["lane_collected"])
            for total, name in ((collected, "lane_collected"), (spoilt, "lane_spoilt")):
                # A lane's counts only grow: its last rollout says the most.
                total[first : first + lanes] = np.maximum(total[first : first + lanes], slot[name])
            in_flight += self._rows(index)
        return Balance(int(collected.sum()), int(record["steps"]), in_flight, int(record["stale"]), int(spoilt.sum()))

    def _rows(self, index: int) -> int:
        return int(self._rollouts.slot(index)["valid"][:-1].sum())
