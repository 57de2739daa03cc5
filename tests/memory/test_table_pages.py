"""Memory of a table's slots is given back in whole parts, and never that of slots that are needed."""

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.memory import table_pages
from penstock.memory.table import Table
from penstock.memory.table_pages import TablePages
from penstock.types import Array, ArraySpec

SPECS = [ArraySpec("obs", (4,), "uint8"), ArraySpec("rollout", (), "uint8")]
WRITERS, SLOTS = 2, 16


class Memory:
    """Notes which slots are given back, and overwrites them as the system would."""

    def __init__(self, memory: Array, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
        monkeypatch.setattr(table_pages, "PART_BYTES", part)
        self.table = Table(memory, SPECS, WRITERS, SLOTS)
        self.pages = TablePages(self.table, self.give_back)
        self.given: list[int] = []
        """Bytes of each part."""

    def give_back(self, part: Array) -> None:
        self.given.append(part.nbytes)
        part[...] = 0

    def fill(self, writer: int, slots: int) -> None:
        for _ in range(slots):
            sequence = self.table.written(writer)
            slot = self.table.slot(self.table.claim(writer, sequence))
            slot["obs"][...] = slot["rollout"][...] = sequence + 1
            self.table.push(writer, sequence)

    def held(self, writer: int, name: str) -> list[int]:
        """The sequences of the writer whose field is still there."""
        found = self.table.arrays[name].reshape(WRITERS, SLOTS, -1)[writer, :, 0]
        return sorted(int(value) - 1 for value in found if value)


@pytest.fixture
def memory(segment, monkeypatch: pytest.MonkeyPatch) -> Memory:
    return Memory(segment(Table.required(SPECS, WRITERS, SLOTS)).bytes, monkeypatch, part=8)


def test_each_field_is_given_back_once_it_makes_a_part(memory: Memory) -> None:
    memory.fill(0, 8)
    memory.fill(1, 8)
    memory.pages.let_go(1, 1)
    assert memory.given == []
    # Two slots of four bytes make a part of eight, and only eight slots of one byte.
    memory.pages.let_go(1, 4)
    assert memory.given == [16]
    memory.pages.let_go(1, 5)
    assert memory.given == [16]
    memory.pages.let_go(1, 7)
    assert memory.given == [16, 12]
    assert (memory.held(1, "obs"), memory.held(1, "rollout")) == ([7], list(range(8)))
    memory.pages.let_go(1, 8)
    assert memory.given == [16, 12, 8]
    assert (memory.held(1, "obs"), memory.held(1, "rollout")) == ([7], [])
    assert memory.held(0, "obs") == list(range(8))


def test_the_half_of_a_ring_to_which_the_writer_comes_next_is_left_alone(memory: Memory) -> None:
    memory.fill(0, 10)
    # The writer has claimed 10 slots, so the eight that it filled last begin with sequence 2.
    memory.pages.let_go(0, 9)
    assert memory.held(0, "obs") == [0, 1, 9]


def test_a_part_may_go_round_the_ring(memory: Memory) -> None:
    memory.fill(0, 20)
    memory.pages.let_go(0, 19)
    # Sequences 12 to 15 lie at the end of the ring, 16 to 18 at its beginning.
    assert memory.given == [16, 12]
    assert memory.held(0, "obs") == [4, 5, 6, 7, 8, 9, 10, 11, 19]


def test_a_writer_that_goes_half_round_its_ring_meanwhile_is_noticed(memory: Memory) -> None:
    memory.fill(0, 10)

    def late(part: Array) -> None:
        memory.fill(0, 9)

    pages = TablePages(memory.table, late)
    with pytest.raises(PenstockError, match="writer 0 was half a ring of slots ahead of what was learned"):
        pages.let_go(0, 9)
    assert np.all(memory.table.arrays["obs"][:SLOTS] > 0)
