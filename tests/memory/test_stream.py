import signal

import numpy as np
import pytest

from penstock.errors import FencedError, ResourceError
from penstock.memory.stream import Recovered, Stream
from penstock.types import ArraySpec

SPECS = [ArraySpec("obs", (5, 2, 3), "float32"), ArraySpec("valid", (5, 2), "bool"), ArraySpec("rollout", (), "int64")]


@pytest.fixture
def stream(segment) -> Stream:
    return Stream(segment(Stream.required(SPECS, 3)).bytes, SPECS, 3)


def test_all_slots_are_one_array(stream: Stream) -> None:
    assert stream.arrays["obs"].shape == (3, 5, 2, 3)
    assert stream.arrays["obs"].flags.c_contiguous
    stream.slot(2)["obs"][4, 1, 2] = 8
    # Flat row index: (slot * (T + 1) + t) * lanes + lane = (2 * 5 + 4) * 2 + 1 = 29.
    assert stream.arrays["obs"].reshape(-1, 3)[29, 2] == 8
    stream.slot(1)["rollout"][...] = 4
    assert stream.arrays["rollout"].tolist() == [0, 4, 0]
    assert stream.slot(1) is stream.slot(1)


def test_a_slot_goes_from_writer_to_reader_and_back(stream: Stream) -> None:
    index = stream.claim(1, 7)
    assert index is not None
    assert (stream.free(), stream.ready()) == (2, 0)
    stream.push(index, 1)
    assert (stream.free(), stream.ready()) == (2, 1)
    assert stream.take(2) == index
    assert stream.sequence(index) == 7
    assert stream.take(2) is None
    stream.release(index, 2)
    assert (stream.free(), stream.ready()) == (3, 0)


def test_a_full_stream_gives_none(stream: Stream) -> None:
    assert [stream.claim(1, sequence) for sequence in range(4)] == [0, 1, 2, None]


def test_slots_come_in_the_order_of_their_sequences(stream: Stream) -> None:
    indices = [stream.claim(1, sequence) for sequence in (5, 3, 4)]
    for index in indices:
        stream.push(index, 1)
    assert [stream.sequence(stream.take(2)) for _ in range(3)] == [3, 4, 5]


def test_a_fenced_owner_is_refused(stream: Stream) -> None:
    index = stream.claim(1, 0)
    assert stream.recover(1) == Recovered(freed=1, returned=0)
    with pytest.raises(FencedError, match="owner 1 cannot push slot 0: it is not writing under that owner, but free"):
        stream.push(index, 1)
    with pytest.raises(FencedError, match="cannot release slot 0"):
        stream.release(index, 1)


def test_a_dead_reader_gives_back_what_it_had_not_committed(stream: Stream) -> None:
    for sequence in range(3):
        stream.push(stream.claim(1, sequence), 1)
    for _ in range(3):
        stream.take(2)
    assert stream.recover(2) == Recovered(freed=0, returned=3)
    assert stream.release_consumed(3, [0, 2, 99]) == 2  # what its commit record named
    assert stream.sequence(stream.take(3)) == 1
    assert stream.take(3) is None
    assert stream.release_consumed(3, [1]) == 1  # freed after a commit, by the sequences just committed
    assert stream.free() == 3


def test_limits_name_themselves(stream: Stream) -> None:
    with pytest.raises(ResourceError, match=r"owner 1048576 is beyond 2\^20 - 1"):
        stream.claim(1 << 20, 0)
    with pytest.raises(ResourceError, match=r"owner 1048576 is beyond 2\^20 - 1"):
        stream.take(1 << 20)
    with pytest.raises(ResourceError, match=r"sequence 1099511627776 is beyond 2\^40 - 1"):
        stream.claim(1, 1 << 40)
    assert stream.claim((1 << 20) - 1, (1 << 40) - 1) == 0
    assert stream.sequence(0) == (1 << 40) - 1


def test_a_slot_that_is_not_there_is_an_error(stream: Stream) -> None:
    with pytest.raises(IndexError, match="slot 3 of 3"):
        stream.push(3, 1)
    with pytest.raises(TypeError):
        stream.push(-1, 1)


def test_memory_must_fit(segment) -> None:
    memory = segment(Stream.required(SPECS, 3) + 64).bytes
    with pytest.raises(ResourceError, match="multiple of 64"):
        Stream(memory[8:], SPECS, 3)
    with pytest.raises(ResourceError, match="the memory has"):
        Stream(memory[:-65], SPECS, 3)
    with pytest.raises(ResourceError, match="a stream needs 64 bytes, its memory has 0"):
        Stream(memory[:0], SPECS, 3)
    memory.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        Stream(memory, SPECS, 3)


HEAD = """
import sys
from penstock.memory.stream import Stream
from penstock.types import ArraySpec
specs = [ArraySpec("obs", (5, 2, 3), "float32"), ArraySpec("valid", (5, 2), "bool"), ArraySpec("rollout", (), "int64")]
stream = Stream(memory, specs, 3)
"""


def test_a_writer_in_another_process(segment, program) -> None:
    shared = segment(Stream.required(SPECS, 3))
    stream = Stream(shared.bytes, SPECS, 3)
    child = program(
        HEAD
        + """
for rollout in range(200):
    while (index := stream.claim(1, rollout)) is None:
        pass
    slot = stream.slot(index)
    slot["obs"][:] = rollout
    slot["rollout"][...] = rollout
    stream.push(index, 1)
""",
        shared,
    )
    for rollout in range(200):
        while (index := stream.take(2)) is None:
            assert child.poll() in (None, 0)
        slot = stream.slot(index)
        assert slot["rollout"] == rollout == stream.sequence(index)
        assert (slot["obs"] == rollout).all()
        stream.release(index, 2)
    assert child.wait() == 0


def test_a_killed_writer_is_recovered(segment, program) -> None:
    shared = segment(Stream.required(SPECS, 3))
    stream = Stream(shared.bytes, SPECS, 3)
    child = program(HEAD + "print(stream.claim(1, 0), flush=True); stream.slot(0)['obs'][0] = 1; input()", shared)
    assert child.stdout.readline() == "0\n"
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert stream.free() == 2
    assert stream.recover(1) == Recovered(freed=1, returned=0)
    assert stream.free() == 3


def test_structures_keep_their_memory_alive(segment) -> None:
    shared = segment(Stream.required(SPECS, 3))
    stream = Stream(shared.bytes, SPECS, 3)
    shared.close()
    stream.push(stream.claim(1, 0), 1)
    assert np.count_nonzero(stream.slot(0)["obs"]) == 0
