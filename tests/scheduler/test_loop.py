"""The event loop: polls all, sleeps only when nobody has work, accounts busy and idle time."""

import math

import pytest

from penstock.scheduler.loop import Loop, Placed


class Counting:
    """A node with so many turns of work."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.steps = 0

    def open(self, ports: object) -> None: ...

    def ready(self) -> bool:
        return self.steps < self.turns

    def step(self) -> None:
        self.steps += 1

    def close(self) -> None: ...


class Vitals:
    def __init__(self) -> None:
        self.beats = 0
        self.busy = 0
        self.idles = 0

    def beat(self) -> None:
        self.beats += 1

    def worked(self, begin_ns: int, end_ns: int) -> None:
        self.busy += end_ns - begin_ns

    def idle(self, until_ns: int) -> None:
        self.idles += 1


class Bell:
    def __init__(self) -> None:
        self.waits: list[tuple[int, float]] = []

    def word(self) -> int:
        return 7

    def wait(self, seen: int, timeout_s: float) -> None:
        self.waits.append((seen, timeout_s))


def test_every_node_gets_its_turn_and_the_loop_sleeps_when_none_has_work() -> None:
    few, many, bell = Counting(1), Counting(3), Bell()
    vitals = Vitals(), Vitals()
    loop = Loop([Placed(few, vitals[0]), Placed(many, vitals[1])], bell, lambda: len(bell.waits) == 2)
    loop.run()
    assert (few.steps, many.steps) == (1, 3)
    # Three rounds with work, then two sleeps on the word that was read before each round, none above the ceiling.
    assert bell.waits == [(7, 0.1), (7, 0.1)]
    assert [v.beats for v in vitals] == [5, 5]
    assert vitals[1].busy > 0
    assert [v.idles for v in vitals] == [2, 2]


class Clock:
    """Stands for the module ``time``."""

    def __init__(self) -> None:
        self.now = 10.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return int(self.now * 1e9)


class Silent(Bell):
    """A bell that nobody rings: each wait takes all its time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, seen: int, timeout_s: float) -> None:
        super().wait(seen, timeout_s)
        self.clock.now += timeout_s


class Due(Counting):
    """A node that becomes ready when its time has come."""

    def __init__(self, clock: Clock, *times: float) -> None:
        super().__init__(len(times))
        self.clock = clock
        self.times = times

    def due(self) -> float:
        return self.times[self.steps] if self.steps < len(self.times) else math.inf

    def ready(self) -> bool:
        return self.clock.now >= self.due()


def test_the_loop_sleeps_no_longer_than_until_a_node_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("penstock.scheduler.loop.time", clock)
    early, late, bell = Due(clock, 10.0, 10.03125), Due(clock, 10.0625, 10.5), Silent(clock)
    placed = [Placed(Counting(0), Vitals()), Placed(early, Vitals()), Placed(late, Vitals())]
    Loop(placed, bell, lambda: len(bell.waits) == 4).run()
    assert [timeout for _, timeout in bell.waits] == [0.03125, 0.03125, 0.1, 0.1]
    assert (early.steps, late.steps) == (2, 1)


def test_a_node_that_becomes_due_during_a_round_is_looked_at_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell = Clock(), Bell()
    monkeypatch.setattr("penstock.scheduler.loop.time", clock)
    node = Due(clock, 10.0)
    monkeypatch.setattr(node, "ready", lambda: False)
    clock.now += 1.0
    Loop([Placed(node, Vitals())], bell, lambda: bool(bell.waits)).run()
    assert bell.waits == [(7, 0.0)]


def test_an_error_of_a_node_is_the_callers() -> None:
    class Failing(Counting):
        def step(self) -> None:
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        Loop([Placed(Failing(1), Vitals())], Bell(), lambda: False).run()
