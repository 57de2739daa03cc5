"""Chooses the faults of a soak, and checks that the run has reported each of them. Sends no signal itself."""

import random
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.soak.log import Told

EVERY_S = (4.0, 6.0)
"""Seconds from one fault to the next: least and most."""
STOPS = 0.1
"""Share of faults that stop an environment's process instead of ending it."""
UPTIME_S = 2.0
"""Largest error of a reported uptime, because a life counts from the supervisor's tick."""


class Fault(NamedTuple):
    """What was done to a process."""

    at: float
    life: int
    """Number of the command in the sitting."""
    part: int
    """Number of the part in its timetable."""
    process: str
    """Placement group of the process."""
    signal: int
    """SIGKILL, or SIGSTOP, which the run has to find by its time-out."""
    age_s: float
    """Seconds that the process had lived."""


class Draw:
    """Chooses process, kind and time of the next fault at random.

    Args:
        groups: the processes that may get a fault.
        stopped: those of them that may also be stopped.
        seed: makes it repeatable.
    """

    def __init__(self, groups: Sequence[str], stopped: Sequence[str], seed: int) -> None:
        self._groups, self._stopped = tuple(groups), tuple(stopped)
        self._random = random.Random(seed)

    def pause_s(self) -> float:
        """Seconds to the next fault."""
        return self._random.uniform(*EVERY_S)

    def next(self, spared: str | None) -> tuple[str, int]:
        """A process and a signal; ``spared`` is left alone."""
        stop = self._random.random() < STOPS
        groups = [group for group in (self._stopped if stop else self._groups) if group != spared]
        return self._random.choice(groups), int(signal.SIGSTOP if stop else signal.SIGKILL)


class Matched(NamedTuple):
    """A fault, and the restarts that were reported for it."""

    fault: Fault
    told: tuple[Told, ...]
    """One restart for each node of the process; fewer if some were not reported."""
    wrong: tuple[str, ...]
    """A line for each fact that was reported wrongly."""


def match(faults: Sequence[Fault], told: Sequence[Told], members: Mapping[str, Sequence[str]]) -> list[Matched]:
    """The faults of one life, each with its reported restart: the n-th fault of a process with its n-th restart.

    Args:
        faults: in order.
        told: the restarts reported in the same life, in any order.
        members: process -> the nodes that it runs.
    """
    counts: dict[str, int] = {}
    found = []
    for fault in faults:
        count = counts[fault.process] = counts.get(fault.process, 0) + 1
        lines, wrong = [], []
        for node in members[fault.process]:
            these = [line for line in told if line.node == node and line.number == count]
            lines += these
            wrong += _differs(fault, node, count, these)
        found.append(Matched(fault, tuple(lines), tuple(wrong)))
    return found


def uncaused(matched: Sequence[Matched], told: Sequence[Told]) -> list[Told]:
    """Reported restarts that no fault has caused."""
    caused = {line for entry in matched for line in entry.told}
    return [line for line in told if line not in caused]


def _differs(fault: Fault, node: str, count: int, told: Sequence[Told]) -> list[str]:
    name = f"{node}, restart {count}"
    if len(told) != 1:
        return [f"{name} was told of {len(told)} times"]
    (line,) = told
    wrong = []
    if line.status != -signal.SIGKILL:
        wrong.append(f"{name}: status {line.status}, it was ended by SIGKILL")
    # A stopped process lives on until the run finds it.
    latest = fault.age_s + (line.at - fault.at)
    if not fault.age_s - UPTIME_S <= line.uptime_s <= latest + UPTIME_S:
        wrong.append(f"{name}: uptime {line.uptime_s:.1f} s, it was {fault.age_s:.1f} s when it was struck")
    if f"restart {count})" not in line.note or "SIGKILL" not in line.note:
        wrong.append(f"{name}: {line.note!r}")
    return wrong
