"""What became of every transition, read from where it is true: the slots' words and payloads, and the commit record.

    collected = learned + in flight + stale + spoilt

No count of it can be left behind by a death. A lane's rows are counted in the slot that carries them, and are collected
once one compare-and-swap has handed that over; what is learned or dropped stands in the commit record, and is so once
one release store has made that current. It takes no lock and changes nothing.
"""

from collections.abc import Hashable, Iterable
from typing import Protocol

import numpy as np

from penstock.memory.record import Record as RecordMemory
from penstock.memory.stream import Stream as StreamMemory
from penstock.memory.table import Table as TableMemory
from penstock.nodes.contract import Balance
from penstock.program.graph import Record, Stream, Table
from penstock.types import Arrays
from penstock.wiring.edges import Wiring

__all__ = ["Ledger", "Streamed", "Tabled", "ledger"]

_BY_LANE = ("lane_collected", "lane_spoilt")
"""Fields of a slot, and of a record, that count each lane's rows."""


def ledger(wiring: Wiring) -> "Ledger | None":
    """The ledger of a run; ``None`` where no record says which rollouts were used up."""
    for record in wiring.edges():
        names = {spec.name for spec in record.arrays} if isinstance(record, Record) else set()
        if not {*_BY_LANE} <= names:
            continue
        for edge in wiring.edges():
            if not (isinstance(edge, Stream | Table) and {*_BY_LANE, "valid"} <= {spec.name for spec in edge.arrays}):
                continue
            if isinstance(edge, Table) and "taken" in names:
                return Ledger(Tabled(wiring.table_memory(edge.name)), wiring.record(record.name))
            if isinstance(edge, Stream) and "consumed_sequence" in names:
                memory = next(memory for stream, memory in wiring.streams() if stream.name == edge.name)
                return Ledger(Streamed(memory), wiring.record(record.name))
    return None


class _Rollouts(Protocol):
    """Where rollouts lie."""

    def waiting(self, record: Arrays) -> dict[Hashable, int]:
        """Name -> slot of what was handed over and is not used up."""
        ...

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot."""
        ...

    def returned(self, owner: int, record: Arrays | None) -> list[int]:
        """The slots that a reader held when it died, not used up, and that nobody has taken since."""
        ...


class Streamed:
    """The record names what was used up."""

    def __init__(self, memory: StreamMemory) -> None:
        self._memory = memory
        self.slot = memory.slot

    def waiting(self, record: Arrays) -> dict[Hashable, int]:
        """As `_Rollouts.waiting`."""
        used = self._used(record)
        return {sequence: slot for sequence, slot in self._memory.written().items() if sequence not in used}

    def returned(self, owner: int, record: Arrays | None) -> list[int]:
        """As `_Rollouts.returned`."""
        used = set() if record is None else self._used(record)
        return [slot for slot in self._memory.returned((owner,)) if self._memory.sequence(slot) not in used]

    @staticmethod
    def _used(record: Arrays) -> set[int]:
        return set(record["consumed_sequence"][record["consumed_slot"] >= 0].tolist())


class Tabled:
    """The record says up to where each writer's slots were taken note of; who reads holds none."""

    def __init__(self, memory: TableMemory) -> None:
        self._memory = memory
        self.slot = memory.slot

    def waiting(self, record: Arrays) -> dict[Hashable, int]:
        """As `_Rollouts.waiting`."""
        return {
            (writer, sequence): self._memory.index(writer, sequence)
            for writer, taken in enumerate(record["taken"].tolist())
            for sequence in range(taken, self._memory.written(writer))
        }

    def returned(self, owner: int, record: Arrays | None) -> list[int]:
        """None."""
        del owner, record
        return []


class Ledger:
    """Reads the balance of rollouts and the record that says which were used up."""

    def __init__(self, rollouts: _Rollouts, record: RecordMemory) -> None:
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
            waiting = self._rollouts.waiting(committed.arrays)
            found = self._add_up(committed.arrays, waiting.values())
            if waiting == self._rollouts.waiting(committed.arrays) and committed.number == self._record.number():
                return found

    def returned(self, owner: int) -> int:
        """Rows that a reader was learning from when it died and that nobody has taken since; they are in flight."""
        committed = self._record.copy()
        slots = self._rollouts.returned(owner, None if committed is None else committed.arrays)
        return sum(self._rows(slot) for slot in slots)

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
