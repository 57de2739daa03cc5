"""What a runtime hands back when a run has ended, and the signs that it reads to know so."""

from typing import NamedTuple

from penstock.program.graph import Program, Record
from penstock.scheduler.wiring import SUPERVISOR, Wiring
from penstock.types import Arrays

__all__ = ["Outcome", "SharedSigns", "final_record"]


class Outcome(NamedTuple):
    """How a run ended."""

    record: Arrays
    """The last committed record; empty if the learner committed nothing."""
    interrupted: bool
    counters: dict[str, dict[str, int]]


def final_record(wiring: Wiring, program: Program) -> Arrays:
    """A copy of what the owner of the program's record has committed last."""
    for edge in program.edges:
        if isinstance(edge, Record):
            committed = wiring.record(edge.name).copy()
            return {} if committed is None else committed.arrays
    return {}


class SharedSigns:
    """Implements ``supervisor.Signs`` over the counters and streams of a run."""

    def __init__(self, wiring: Wiring, program: Program) -> None:
        self._wiring = wiring
        self._last = program.ends_with
        self._groups = program.groups
        # A stream that only finished nodes read will never be empty, and need not be.
        self._drains = [memory for edge, memory in wiring.streams() if not set(edge.readers) <= set(self._last)]

    def finished(self) -> bool:
        """True once the nodes that the run ends with have nothing left to do."""
        return all(self._wiring.counters.get(name, "finished") for name in self._last)

    def drained(self) -> bool:
        """True once every slot that a reader still has to deal with is free again."""
        return all(memory.free() == memory.slots for memory in self._drains)

    def stop(self) -> None:
        """Ask all nodes to begin nothing new."""
        self._set("stopping")

    def end(self) -> None:
        """Ask all loops to end."""
        self._set("ended")

    def _set(self, word: str) -> None:
        self._wiring.counters.set(SUPERVISOR, word, 1)
        for group in self._groups:
            self._wiring.bells.ring(self._wiring.bell_of(group))
