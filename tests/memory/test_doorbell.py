import math
import select
import signal
import threading

import pytest

from penstock.memory.doorbell import BellDescriptor, Doorbells


@pytest.fixture
def bells(segment) -> Doorbells:
    return Doorbells(segment(Doorbells.required(2)).bytes, 2)


def test_a_ring_before_the_sleep_is_not_lost(bells: Doorbells) -> None:
    seen = bells.word(0)
    bells.ring(0)
    assert bells.wait(0, seen, math.inf)
    assert not bells.wait(0, bells.word(0), 0.0)


def test_bells_are_apart(bells: Doorbells) -> None:
    bells.ring(1)
    assert (bells.word(0), bells.word(1)) == (0, 1)
    bells.ring_all()
    assert (bells.word(0), bells.word(1)) == (1, 2)
    with pytest.raises(IndexError, match="bell 2 of 2"):
        bells.ring(2)


@pytest.mark.parametrize("timeout_s", [0.001, 0.0, -1.0, math.nan])
def test_a_sleep_ends(bells: Doorbells, timeout_s: float) -> None:
    assert not bells.wait(0, 0, timeout_s)
    assert not bells.wait(0, 0, timeout_s, 0.0005)


def test_no_sleep_is_longer_than_the_ceiling(bells: Doorbells) -> None:
    assert not bells.wait(0, 0, math.inf)  # comes back at all
    assert not bells.wait(0, 0, 1e300, 1e300)


def test_threads_of_one_process_wake_each_other(bells: Doorbells) -> None:
    ball = [0]

    def play(own: int) -> None:
        seen = 0
        for turn in range(own, 400, 2):
            while turn and bells.word(own) == seen:
                bells.wait(own, seen)
            seen = bells.word(own)
            assert ball[0] == turn
            ball[0] += 1
            bells.ring(1 - own)

    other = threading.Thread(target=play, args=(1,))
    other.start()
    play(0)
    other.join()
    assert ball[0] == 400


def test_a_signal_ends_the_sleep(bells: Doorbells) -> None:
    class RangError(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise RangError

    def sleep_for_ever() -> None:
        while True:
            bells.wait(0, 0)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(RangError):
            sleep_for_ever()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_processes_wake_each_other(segment, program) -> None:
    shared = segment(Doorbells.required(2))
    bells = Doorbells(shared.bytes, 2)
    child = program(
        """
from penstock.memory.doorbell import Doorbells
bells = Doorbells(memory, 2)
for turn in range(300):
    while bells.word(1) == turn:
        bells.wait(1, turn)
    bells.ring(0)
""",
        shared,
    )
    for turn in range(300):
        bells.ring(1)
        while bells.word(0) == turn:
            bells.wait(0, turn)
            assert child.poll() in (None, 0)
    assert child.wait() == 0


def test_a_descriptor_becomes_readable_for_an_armed_process(bells: Doorbells) -> None:
    descriptor = BellDescriptor.create()
    bells.attach(0, descriptor)
    bells.ring(0)
    assert select.select([descriptor.read_fd], [], [], 0)[0] == []  # nobody is armed: no system call
    seen = bells.word(0)
    assert bells.arm(0, seen)
    bells.ring(0)
    bells.ring(1)
    assert select.select([descriptor.read_fd], [], [], 10)[0] == [descriptor.read_fd]
    bells.disarm(0)
    descriptor.drain()
    descriptor.drain()
    assert select.select([descriptor.read_fd], [], [], 0)[0] == []
    assert not bells.arm(0, seen)  # rung since: do not sleep
    bells.disarm(0)
    descriptor.close()


def test_a_dead_sleeper_is_forgotten(bells: Doorbells) -> None:
    descriptor = BellDescriptor.create()
    bells.attach(0, descriptor)
    assert bells.arm(0, 0)
    bells.recover(0)
    bells.ring(0)
    assert select.select([descriptor.read_fd], [], [], 0)[0] == []
    descriptor.close()
