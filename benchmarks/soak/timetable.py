"""The timetable of a soak: parts with faults and without, in turns, and the processes that are spared. Runs nothing.

A sitting has two lives of three turns each. In a turn one kind of process gets no faults, so that it lives long enough
for its memory to be measured while others die. In the last turn no process is spared. A turn is made of cycles: a quiet
part, then a part with faults. So both are measured on the same machine in the same minute.
"""

from collections.abc import Sequence
from typing import NamedTuple

CYCLE_S = 60.0
"""Most seconds with faults in a cycle."""
QUIET_SHARE = 1 / 3
QUIET_AT_LEAST_S = 10.0
SETTLE_S = 4.0
"""Seconds from the last fault until a quiet part begins to count."""
SPAN_S = 5.0
"""Seconds of a quiet span, as long as the time from one fault to the next."""


class Part(NamedTuple):
    """A part of a life, quiet or with faults."""

    number: int
    """Number of the part in the sitting."""
    cycle: int
    seconds: float
    faults: bool
    spared: str | None


def timetable(minutes: float, spared: Sequence[str | None], lives: int) -> list[list[Part]]:
    """The parts of each life.

    Args:
        minutes: minutes with faults, over all lives. Quiet parts come on top.
        spared: the process that is spared in each turn; ``None``: no process.
        lives: number of lives. The turns are distributed over them in order.
    """
    turn_s = minutes * 60.0 / len(spared)
    cycles = max(1, round(turn_s / CYCLE_S))
    faults_s = turn_s / cycles
    quiet_s = max(QUIET_AT_LEAST_S, faults_s * QUIET_SHARE)
    parts: list[Part] = []
    for turn, who in enumerate(spared):
        for cycle in range(turn * cycles, (turn + 1) * cycles):
            parts.append(Part(2 * cycle, cycle, quiet_s, faults=False, spared=who))
            parts.append(Part(2 * cycle + 1, cycle, faults_s, faults=True, spared=who))
    each = -(-len(spared) // lives) * cycles * 2
    return [parts[begin : begin + each] for begin in range(0, len(parts), each)]
