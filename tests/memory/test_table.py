import signal

import numpy as np
import pytest

from penstock.errors import FencedError, ResourceError
from penstock.memory.table import Table
from penstock.types import ArraySpec

SPECS = [ArraySpec("obs", (5, 2, 3), "float32"), ArraySpec("valid", (5, 2), "bool"), ArraySpec("rollout", (), "int64")]
WRITERS, SLOTS = 2, 3


@pytest.fixture
def table(segment) -> Table:
    return Table(segment(Table.required(SPECS, WRITERS, SLOTS)).bytes, SPECS, WRITERS, SLOTS)


def fill(table: Table, writer: int, sequence: int) -> int:
    index = table.claim(writer, sequence)
    table.slot(index)["rollout"][...] = 10 * writer + sequence
    table.push(writer, sequence)
    return index


def test_all_slots_are_one_array(table: Table) -> None:
    assert table.arrays["obs"].shape == (6, 5, 2, 3)
    assert table.arrays["obs"].flags.c_contiguous
    table.slot(4)["obs"][4, 1, 2] = 8
    # Flat row index: (slot * (T + 1) + t) * lanes + lane = (4 * 5 + 4) * 2 + 1 = 49.
    assert table.arrays["obs"].reshape(-1, 3)[49, 2] == 8


def test_each_writer_overwrites_its_own_ring(table: Table) -> None:
    assert [fill(table, 0, sequence) for sequence in range(4)] == [0, 1, 2, 0]
    assert [fill(table, 1, sequence) for sequence in range(2)] == [3, 4]
    assert table.arrays["rollout"].tolist() == [3, 1, 2, 10, 11, 0]
    assert (table.written(0), table.written(1)) == (4, 2)
    # Sequence 5 of writer 1 will stand at 1 * 3 + 5 % 3 = 5.
    assert table.index(1, 5) == 5


def test_a_claim_is_counted_before_the_push(table: Table) -> None:
    table.claim(0, 0)
    assert (table.claimed(0), table.written(0)) == (1, 0)
    table.push(0, 0)
    assert (table.claimed(0), table.written(0)) == (1, 1)


def test_a_successor_claims_the_same_sequence(table: Table) -> None:
    fill(table, 0, 0)
    assert table.claim(0, 1) == table.claim(0, 1) == 1
    table.push(0, 1)
    assert table.written(0) == 2


def test_wrong_use_is_named(table: Table) -> None:
    with pytest.raises(ValueError, match="writer 0 cannot claim sequence 1: its next one is 0"):
        table.claim(0, 1)
    with pytest.raises(FencedError, match="writer 0 cannot push sequence 0: it has written 0 slots and claimed 0"):
        table.push(0, 0)
    fill(table, 0, 0)
    with pytest.raises(FencedError, match="writer 0 cannot push sequence 0: it has written 1 slots and claimed 1"):
        table.push(0, 0)
    with pytest.raises(IndexError, match="writer 2 of 2"):
        table.claim(2, 0)
    with pytest.raises(TypeError):
        table.claim(0, -1)


def test_a_restored_ring_goes_on_where_it_was(table: Table) -> None:
    table.begin(1, 7, 5)
    assert table.first(1) == 5
    assert (table.claimed(1), table.written(1), table.written(0)) == (7, 7, 0)
    assert fill(table, 1, 7) == 4


def test_memory_must_fit(segment) -> None:
    memory = segment(Table.required(SPECS, WRITERS, SLOTS) + 64).bytes
    with pytest.raises(ResourceError, match="multiple of 64"):
        Table(memory[8:], SPECS, WRITERS, SLOTS)
    with pytest.raises(ResourceError, match="the memory has"):
        Table(memory[:-128], SPECS, WRITERS, SLOTS)
    with pytest.raises(ResourceError, match="a table needs 128 bytes, its memory has 64"):
        Table(memory[:64], SPECS, WRITERS, SLOTS)
    with pytest.raises(ValueError, match="at least 1 writer and 2 slots for each, not 2 and 1"):
        Table(memory, SPECS, WRITERS, 1)
    with pytest.raises(ValueError, match="at least 1 writer and 2 slots for each, not 0 and 3"):
        Table(memory, SPECS, 0, SLOTS)


PROGRAM = """
from penstock.memory.table import Table
from penstock.types import ArraySpec
specs = [ArraySpec("obs", (5, 2, 3), "float32"), ArraySpec("valid", (5, 2), "bool"), ArraySpec("rollout", (), "int64")]
table = Table(memory, specs, 2, 3)
for sequence in range(4):
    slot = table.slot(table.claim(1, sequence))
    slot["obs"][:] = sequence
    table.push(1, sequence)
slot = table.slot(table.claim(1, 4))
slot["obs"][:2] = 4
print("claimed", flush=True)
input()
"""


def test_a_killed_writer_loses_only_what_it_was_writing(segment, program) -> None:
    shared = segment(Table.required(SPECS, WRITERS, SLOTS))
    table = Table(shared.bytes, SPECS, WRITERS, SLOTS)
    child = program(PROGRAM, shared)
    assert child.stdout.readline() == "claimed\n"
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert (table.claimed(1), table.written(1)) == (5, 4)
    for sequence in (2, 3):  # claimed - slots <= sequence < written
        assert (table.slot(table.index(1, sequence))["obs"] == sequence).all()
    assert fill(table, 1, 4) == 4


def test_a_checksum_knows_each_byte_its_place_and_its_sequence(segment) -> None:
    nbytes = Table.required(SPECS, WRITERS, SLOTS)
    words = np.zeros(8 * WRITERS * SLOTS, np.uint8)
    table = Table(segment(nbytes).bytes, SPECS, WRITERS, SLOTS, words)
    # 21 bytes: one pair of words, and a part of one.
    part, other = np.arange(21, dtype=np.uint8), np.arange(3.0)
    table.sign(4, 7, [part, other])
    assert table.unaltered(4, 7, [part, other])
    assert not table.unaltered(4, 10, [part, other])
    assert not table.unaltered(1, 7, [part, other])
    assert not table.unaltered(4, 7, [other, part])
    for byte in range(21):
        for bit in (1, 128):
            part[byte] ^= bit
            assert not table.unaltered(4, 7, [part, other])
            part[byte] ^= bit
    assert table.unaltered(4, 7, [part, other])


def test_a_table_without_checksums_takes_every_slot_as_it_is(table: Table) -> None:
    table.sign(4, 7, [])
    assert table.unaltered(4, 8, [np.ones(3)])


def test_slots_that_are_forgotten_can_no_longer_be_read_and_the_writer_goes_on(table: Table) -> None:
    for writer in (0, 1):
        for sequence in range(3):
            fill(table, writer, sequence)
    table.forget(1, 2)
    assert (table.first(0), table.first(1)) == (0, 2)
    # Below 3 one slot of three is left out in any case: its writer may be filling it.
    assert (table.held(0, 3), table.held(1, 3)) == (2, 1)
    # What was forgotten stays forgotten.
    table.forget(1, 1)
    assert table.first(1) == 2
    # Its shard knows it too, and the writer goes on.
    assert table.shard(1, 2).first(0) == 2
    fill(table, 1, 3)
    assert (table.first(1), table.written(1), table.held(1, 4)) == (2, 4, 2)
    for sequence in (4, 5):
        fill(table, 1, sequence)
    assert table.first(1) == 3


def test_a_shard_forgets_its_own_slots(table: Table) -> None:
    for writer in (0, 1):
        for sequence in range(3):
            fill(table, writer, sequence)
    table.shard(1, 2).forget(0, 1)
    assert (table.first(0), table.first(1)) == (0, 1)
