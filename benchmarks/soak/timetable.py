"""The timetable of a soak: stretches with faults and without, in turns, and who is spared when. Does nothing itself.

A sitting has two lives, each of three turns. In a turn one kind of process is spared, so that it lives long enough for
its memory to be measured while the others die around it; in the last turn nobody is. A turn is made of cycles, each a
quiet part and then one with faults, so that both are measured on the same machine in the same minute.
"""

from collections.abc import Sequence
from typing import NamedTuple

CYCLE_S = 60.0
"""Of faults in a cycle, at most."""
QUIET_SHARE = 1 / 3
QUIET_AT_LEAST_S = 10.0
SETTLE_S = 4.0
"""After its last fault a run is left alone for so long, before the quiet begins to count."""
SPAN_S = 5.0
"""Length of a quiet span: as long as the time from one fault to the next."""


class Part(NamedTuple):
    """A stretch of a life."""

    number: int
    """Counted over the sitting."""
    cycle: int
    seconds: float
    faults: bool
    spared: str | None


def timetable(minutes: float, spared: Sequence[str | None], lives: int) -> list[list[Part]]:
    """The parts of each life.

    Args:
        minutes: with faults, over all lives; the quiet comes on top.
        spared: who is spared in each turn; ``None``: nobody.
        lives: how many lives the turns are dealt to, in order.
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
