"""A node's vitals, which split all its time into work and idle time; and when its end of a board is new enough."""

import numpy as np
import pytest

from penstock.memory.board import Board
from penstock.memory.segment import Segment
from penstock.scheduler.loop import Loop, Placed
from penstock.types import ArraySpec
from penstock.wiring import ports as ports_module
from penstock.wiring.edges import Wiring
from penstock.wiring.ends import BoardEnd
from penstock.wiring.ports import NodePorts


class Clock:
    """A clock in nanoseconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_000

    def monotonic_ns(self) -> int:
        return self.now


class Working:
    """A node whose turns take this long each."""

    def __init__(self, clock: Clock, *turns: int) -> None:
        self.clock = clock
        self.turns = list(turns)

    def open(self, ports: object) -> None: ...

    def ready(self) -> bool:
        return bool(self.turns)

    def step(self) -> None:
        self.clock.now += self.turns.pop(0)

    def close(self) -> None: ...


class Sleep:
    """A bell that rings after this time."""

    def __init__(self, clock: Clock, *sleeps: int) -> None:
        self.clock = clock
        self.sleeps = list(sleeps)

    def word(self) -> int:
        return 0

    def wait(self, seen: int, timeout_s: float) -> None:
        self.clock.now += self.sleeps.pop(0)


def test_a_nodes_time_is_work_or_idle_and_nothing_else(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr(ports_module, "monotonic_ns", clock.monotonic_ns)
    monkeypatch.setattr("penstock.scheduler.loop.time", clock)
    wiring = Wiring((), [("a", "one"), ("b", "one"), ("c", "one")])
    segment = Segment.create(wiring.nbytes, "test")
    wiring.attach(segment.bytes)
    ports = [NodePorts(wiring, name, "one", 1) for name in "abc"]
    clock.now += 500  # opening is neither
    for one in ports:
        one.begin()
    bell = Sleep(clock, 700, 300)
    nodes = [Working(clock, 10, 20), Working(clock, 5), Working(clock)]
    placed = [Placed(node, one) for node, one in zip(nodes, ports, strict=True)]
    Loop(placed, bell, lambda: not bell.sleeps).run()
    # 10 + 5 + 20 of work, one node after the other, and 1,000 of sleep. While one node works, the others wait.
    assert [(wiring.counters.get(name, "busy_ns"), wiring.counters.get(name, "idle_ns")) for name in "abc"] == [
        (30, 1_005),
        (5, 1_030),
        (0, 1_035),
    ]


@pytest.mark.parametrize(("max_lag", "fresh"), [(0, 4), (2, 6), (None, 1000)])
def test_a_board_is_new_enough_for_so_many_turns(max_lag: int | None, fresh: int) -> None:
    specs = (ArraySpec("actor", (3,), "float32"),)
    board = Board(Segment.create(Board.required(specs), "test").bytes, specs)
    end = BoardEnd(board, lambda: None, max_lag)
    assert not end.fresh(0)  # nothing is published yet
    end.publish({"actor": np.zeros(3, np.float32)}, 4)
    assert end.fresh(fresh)
    assert end.fresh(fresh + 1) is (max_lag is None)
