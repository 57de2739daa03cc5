"""The loop that supervises processes, on a clock that the test sets."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.processes import supervised
from penstock.supervision.supervisor import State


class Clock:
    """Each wait for a bell takes as long as the test says."""

    def __init__(self, *waits_s: float) -> None:
        self.now = 100.0
        self._waits_s = list(waits_s)

    def monotonic(self) -> float:
        return self.now

    def word(self, _: int) -> int:
        return 0

    def wait(self, *_: float) -> None:
        self.now += self._waits_s.pop(0)


class Supervisor:
    """Ends after three ticks. A tick may take long, as it does where stacks are read."""

    state = State.RUNNING

    def __init__(self, clock: Clock) -> None:
        self.done: list[tuple[str, float]] = []
        self._clock = clock

    def tick(self, now: float) -> State:
        self.done.append(("tick", now))
        self._clock.now += 3.0
        return State.ENDED if len(self.done) >= 4 else State.RUNNING

    def excuse(self, seconds: float) -> None:
        self.done.append(("excuse", seconds))


def test_time_in_which_the_supervisor_does_not_run_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.1, 5.0)
    monkeypatch.setattr(supervised, "time", clock)
    supervisor = Supervisor(clock)
    wiring, interrupts = SimpleNamespace(bells=clock), SimpleNamespace(count=0)
    heard: list[int] = []
    given = cast("Any", supervisor), cast("Any", interrupts), cast("Any", wiring)
    supervised._supervise(*given, lambda: heard.append(len(supervisor.done)))
    assert supervisor.done == [("tick", 100.0), ("tick", 103.1), ("excuse", 5.0), ("tick", 111.1)]
    assert heard == [1, 2, 4], "after each look at the processes, the last one too"
