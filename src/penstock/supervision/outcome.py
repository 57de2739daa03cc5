"""How a run ended."""

from typing import NamedTuple

from penstock.program.graph import Program, Record
from penstock.supervision.lives import Exit
from penstock.types import Arrays
from penstock.wiring.edges import Wiring

__all__ = ["Outcome", "final_record"]


class Outcome(NamedTuple):
    """How a run ended."""

    record: Arrays
    """The last committed record; empty if the learner committed nothing."""
    interrupted: bool
    counters: dict[str, dict[str, int]]
    spared: tuple[Exit, ...] = ()
    """Processes that failed while the run ended, when nothing was needed of them any more."""


def final_record(wiring: Wiring, program: Program) -> Arrays:
    """A copy of the last commit in the program's record; empty if there is none."""
    for edge in program.edges:
        if isinstance(edge, Record):
            committed = wiring.record(edge.name).copy()
            return {} if committed is None else committed.arrays
    return {}
