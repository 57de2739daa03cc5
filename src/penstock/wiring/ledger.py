"""The ledger: what became of every row, read from the slots and from the commit record.

    collected = learned + in flight + stale + spoilt

A death cannot make a count wrong, because each count becomes true together with what it counts:

1. A slot holds the counts of its lanes. Its rows are collected at the compare-and-swap that pushes the slot.
2. The commit record holds what was learned or dropped. It becomes current with one release store.

The ledger takes no lock and changes nothing.
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
    """The ledger of a run; ``None`` if no record names the rollouts that were used up."""
    for record in wiring.edges():
        names = {spec.name for spec in record.arrays} if isinstance(record, Record) else set()
        if not {*_BY_LANE} <= names:
            continue
        for edge in wiring.edges():
            if not (isinstance(edge, Stream | Table) and {*_BY_LANE, "valid"} <= {spec.name for spec in edge.arrays}):
                continue
            if isinstance(edge, Table) and "taken" in names:
                return Ledger(Tabled(wiring.table_memory(edge.name)), wiring.record(record.name), edge.readers)
            if isinstance(edge, Stream) and "consumed_sequence" in names:
                memory = next(memory for stream, memory in wiring.streams() if stream.name == edge.name)
                return Ledger(Streamed(memory), wiring.record(record.name), edge.readers)
    return None


class _Rollouts(Protocol):
    """The stream or the table that holds rollouts."""

    reads: tuple[str, ...]
    """The arrays of the record by which these methods know what was used up."""

    def waiting(self, record: Arrays) -> dict[Hashable, int]:
        """Key -> slot, of rollouts that were pushed and are not used up."""
        ...

    def slot(self, index: int) -> Arrays:
        """The arrays of a slot."""
        ...

    def returned(self, owner: int, record: Arrays | None) -> list[int]:
        """Slots that a reader held when it died, that are not used up, and that no other reader has taken since."""
        ...


class Streamed:
    """Rollouts in a stream. The record names those that were used up."""

    reads: tuple[str, ...] = ("consumed_slot", "consumed_sequence")

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
    """Rollouts in a table. The record counts the slots of each writer that were noted. Readers hold no slots."""

    reads: tuple[str, ...] = ("taken",)

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
    """Adds up rollouts and the record that names those that were used up.

    Attributes:
        readers: the nodes that take rollouts.
    """

    def __init__(self, rollouts: _Rollouts, record: RecordMemory, readers: tuple[str, ...] = ()) -> None:
        self._rollouts = rollouts
        self._record = record
        self._reads = (*_BY_LANE, "steps", "stale", *rollouts.reads)
        self.readers = readers

    def balance(self) -> Balance:
        """The balance of one instant. Looks again until nothing was committed or pushed while it looked.

        Race: all nodes go on meanwhile.

        1. A slot is freed only after the commit that names it. So while one record is current, the set of rollouts
           that were pushed and are not used up only grows.
        2. Two equal looks at that set therefore mean that it was the same at every instant between them.
        3. So the payloads that were read between the two looks did not change either.
        """
        while True:
            committed = self._record.copy(self._reads)
            if committed is None:
                if self._record.number() < 0:
                    # No row is collected before the first policy is published, and that follows the first commit.
                    return Balance(0, 0, 0, 0, 0)
                continue
            waiting = self._rollouts.waiting(committed.arrays)
            found = self._add_up(committed.arrays, waiting.values())
            if waiting == self._rollouts.waiting(committed.arrays) and committed.number == self._record.number():
                return found

    def returned(self, owner: int) -> int:
        """Rows that a reader was learning from when it died and that no other reader has taken since."""
        committed = self._record.copy(self._reads)
        slots = self._rollouts.returned(owner, None if committed is None else committed.arrays)
        return sum(self._rows(slot) for slot in slots)

    def _add_up(self, record: Arrays, waiting: Iterable[int]) -> Balance:
        collected, spoilt = (record[name].copy() for name in _BY_LANE)
        in_flight = 0
        for index in waiting:
            slot = self._rollouts.slot(index)
            first, lanes = int(slot["first_lane"]), len(slot["lane_collected"])
            for total, name in ((collected, "lane_collected"), (spoilt, "lane_spoilt")):
                # A lane's counts only grow, so its last rollout has the largest.
                total[first : first + lanes] = np.maximum(total[first : first + lanes], slot[name])
            in_flight += self._rows(index)
        return Balance(int(collected.sum()), int(record["steps"]), in_flight, int(record["stale"]), int(spoilt.sum()))

    def _rows(self, index: int) -> int:
        return int(self._rollouts.slot(index)["valid"][:-1].sum())
