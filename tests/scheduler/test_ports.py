"""A node's vitals: all of its time is either work or idle, also where nodes share a process."""

from penstock.memory.segment import Segment
from penstock.scheduler import ports as ports_module
from penstock.scheduler.loop import Loop, Placed
from penstock.scheduler.ports import NodePorts
from penstock.scheduler.wiring import Wiring


class Clock:
    """Nanoseconds that pass only where the test says so."""

    def __init__(self) -> None:
        self.now = 1_000

    def monotonic_ns(self) -> int:
        return self.now


class Working:
    """A node whose turns take so long each."""

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
    """A bell that rings after so long."""

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
    # 10 + 5 + 20 of work, one after the other, and 1,000 of sleep: what one of them does the others wait for.
    assert [(wiring.counters.get(name, "busy_ns"), wiring.counters.get(name, "idle_ns")) for name in "abc"] == [
        (30, 1_005),
        (5, 1_030),
        (0, 1_035),
    ]
