"""The balance of transitions holds wherever its writers and readers are interrupted."""

import numpy as np
import pytest

from penstock.memory.record import Record
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.memory.table import Table
from penstock.nodes.contract import Balance
from penstock.types import ArraySpec
from penstock.wiring.ledger import Ledger, Streamed, Tabled

LANES, STEPS = 2, 3
ROLLOUT = [
    ArraySpec("valid", (STEPS + 1, LANES), "bool"),
    ArraySpec("first_lane", (), "int64"),
    ArraySpec("lane_collected", (LANES,), "int64"),
    ArraySpec("lane_spoilt", (LANES,), "int64"),
]
RECORD = [
    ArraySpec("steps", (), "int64"),
    ArraySpec("stale", (), "int64"),
    ArraySpec("lane_collected", (2 * LANES,), "int64"),
    ArraySpec("lane_spoilt", (2 * LANES,), "int64"),
    ArraySpec("consumed_slot", (2,), "int64"),
    ArraySpec("consumed_sequence", (2,), "int64"),
]
ENV, LEARNER, NEXT = 1, 2, 3


class Run:
    """Two environment nodes of two lanes each, whose rollouts have six rows, and a learner."""

    def __init__(self) -> None:
        self.stream = Stream(Segment.create(Stream.required(ROLLOUT, 4), "test").bytes, ROLLOUT, 4)
        self.record = Record(Segment.create(Record.required(RECORD), "test").bytes, RECORD)
        self.ledger = Ledger(Streamed(self.stream), self.record)
        self.given = [0, 0]
        self.commit([], 0)

    def write(self, worker: int) -> int:
        """A rollout that is written and not yet handed over."""
        self.given[worker] += 1
        index = self.stream.claim(ENV, 2 * self.given[worker] + worker)
        assert index is not None
        slot = self.stream.slot(index)
        slot["valid"][...] = True
        slot["first_lane"][...] = LANES * worker
        slot["lane_collected"][...] = STEPS * self.given[worker]
        return index

    def push(self, worker: int) -> None:
        self.stream.push(self.write(worker), ENV)

    def take(self, owner: int = LEARNER) -> int:
        index = self.stream.take(owner)
        assert index is not None
        return index

    def commit(self, slots: list[int], learned: int, stale: int = 0) -> None:
        new = self.record.begin()
        old = self.record.current()
        for name, values in new.items():
            values[...] = 0 if old is None else old.arrays[name]
        new["consumed_slot"][:] = -1
        for position, index in enumerate(slots):
            slot = self.stream.slot(index)
            first = int(slot["first_lane"])
            new["consumed_slot"][position] = index
            new["consumed_sequence"][position] = self.stream.sequence(index)
            new["lane_collected"][first : first + LANES] = slot["lane_collected"]
        new["steps"] += learned
        new["stale"] += stale
        self.record.commit(self.record.number() + 1)


def test_rows_are_collected_once_they_are_handed_over() -> None:
    run = Run()
    index = run.write(0)
    assert run.ledger.balance() == Balance(0, 0, 0, 0, 0)
    run.stream.push(index, ENV)
    assert run.ledger.balance() == Balance(6, 0, 6, 0, 0)


def test_rows_are_learned_by_the_commit_not_by_the_freeing() -> None:
    run = Run()
    run.push(0)
    run.push(1)
    slots = [run.take(), run.take()]
    assert run.ledger.balance() == Balance(12, 0, 12, 0, 0)
    run.commit(slots, 12)
    assert run.ledger.balance() == Balance(12, 12, 0, 0, 0)
    # It died between the two. Its slots are ready again, and the record says that they are used up.
    run.stream.recover(LEARNER)
    assert run.ledger.balance() == Balance(12, 12, 0, 0, 0)
    assert run.ledger.returned(LEARNER) == 0


def test_what_a_dead_learner_was_at_is_in_flight_and_counted_as_redone() -> None:
    run = Run()
    run.push(0)
    run.push(1)
    run.take()
    run.stream.recover(LEARNER)
    assert run.ledger.balance() == Balance(12, 0, 12, 0, 0)
    assert run.ledger.returned(LEARNER) == 6
    # The next one dies before it has taken a slot, so nothing has to be repeated.
    run.stream.recover(NEXT)
    assert run.ledger.returned(NEXT) == 0


def test_what_is_dropped_is_so_by_a_commit() -> None:
    run = Run()
    run.push(1)
    index = run.take()
    run.commit([index], 0, stale=6)
    assert run.ledger.balance() == Balance(6, 0, 0, 6, 0)


def test_a_record_that_changes_meanwhile_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    run.push(0)
    run.push(1)
    seen = run.stream.written

    def commit_and_go_on() -> dict[int, int]:
        """An update ends and a rollout comes after the record was copied and before the slots are read."""
        monkeypatch.undo()
        slots = [run.take(), run.take()]
        run.commit(slots, 12)
        for index in slots:
            run.stream.release(index, LEARNER)
        run.push(0)
        return seen()

    monkeypatch.setattr(run.stream, "written", commit_and_go_on)
    assert run.ledger.balance() == Balance(18, 12, 6, 0, 0)


def test_a_rollout_that_comes_meanwhile_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    run.push(0)
    looks: list[dict[int, int]] = []
    seen = run.stream.written

    def look() -> dict[int, int]:
        looks.append(seen())
        if len(looks) == 1:
            run.push(0)
            run.push(1)
        return looks[-1]

    monkeypatch.setattr(run.stream, "written", look)
    assert run.ledger.balance() == Balance(18, 0, 18, 0, 0)
    assert len(looks) == 4


def test_before_the_first_commit_nothing_is_collected() -> None:
    run = Run()
    record = Record(Segment.create(Record.required(RECORD), "test").bytes, RECORD)
    assert Ledger(Streamed(run.stream), record).balance() == Balance(0, 0, 0, 0, 0)


class ReplayRun:
    """Two environment nodes that write into rings of three slots, and a learner that takes note of them."""

    RECORD = (*RECORD[:4], ArraySpec("taken", (2,), "int64"))

    def __init__(self) -> None:
        memory = Segment.create(Table.required(ROLLOUT, 2, 3), "test").bytes
        self.table = Table(memory, ROLLOUT, 2, 3)
        self.record = Record(Segment.create(Record.required(self.RECORD), "test").bytes, list(self.RECORD))
        self.ledger = Ledger(Tabled(self.table), self.record)
        self.commit([0, 0])

    def push(self, worker: int) -> None:
        sequence = self.table.written(worker)
        slot = self.table.slot(self.table.claim(worker, sequence))
        slot["valid"][...] = True
        slot["first_lane"][...] = LANES * worker
        slot["lane_collected"][...] = STEPS * (sequence + 1)
        self.table.push(worker, sequence)

    def commit(self, taken: list[int]) -> None:
        new = self.record.begin()
        new["steps"][...] = STEPS * LANES * sum(taken)
        new["stale"][...] = new["lane_spoilt"][...] = 0
        new["lane_collected"][...] = STEPS * np.repeat(taken, LANES)
        new["taken"][...] = taken
        self.record.commit(self.record.number() + 1)


def test_rows_of_a_table_are_in_flight_until_a_commit_takes_note_of_them() -> None:
    run = ReplayRun()
    run.push(0)
    run.push(0)
    run.push(1)
    assert run.ledger.balance() == Balance(collected=18, learned=0, in_flight=18, stale=0, spoilt=0)
    run.commit([1, 1])
    assert run.ledger.balance() == Balance(collected=18, learned=12, in_flight=6, stale=0, spoilt=0)
    # A slot that is being filled does not count yet, because its writer may die.
    run.table.claim(1, 1)
    assert run.ledger.balance() == Balance(collected=18, learned=12, in_flight=6, stale=0, spoilt=0)
    run.push(1)
    run.commit([2, 2])
    assert run.ledger.balance() == Balance(collected=24, learned=24, in_flight=0, stale=0, spoilt=0)
    assert run.ledger.returned(LEARNER) == 0
