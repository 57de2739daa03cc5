"""What a runtime hands back when a run has ended, and the signs that it reads to know so."""

from collections.abc import Collection
from time import monotonic_ns
from typing import NamedTuple

from penstock.program.graph import Program, Record
from penstock.scheduler.supervisor import Silence
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
        self._nodes = program.nodes
        self._groups = program.groups
        group_of = {node.name: node.group for node in program.nodes}
        # A stream that only finished nodes read will never be empty, and need not be.
        self._drains = [
            ({group_of[reader] for reader in edge.readers}, memory)
            for edge, memory in wiring.streams()
            if not set(edge.readers) <= set(self._last)
        ]

    def finished(self) -> bool:
        """True once the nodes that the run ends with have nothing left to do."""
        return all(self._wiring.counters.get(name, "finished") for name in self._last)

    def drained(self, running: Collection[str]) -> bool:
        """True once every slot that a reader in the ``running`` groups still has to deal with is free again."""
        return all(memory.free() == memory.slots for groups, memory in self._drains if groups & set(running))

    def deserted(self, running: Collection[str]) -> bool:
        """True if a stream that somebody may be waiting on is full, and none of the ``running`` groups reads it."""
        return any(memory.free() == 0 for groups, memory in self._drains if not groups & set(running))

    def expect(self, limit_s: float) -> None:
        """Nodes are about to be started: for so long they may be silent."""
        now = monotonic_ns()
        for node in self._nodes:
            self._wiring.counters.set(node.name, "heartbeat_ns", now)
            self._wiring.counters.set(node.name, "busy_until_ns", now + int(limit_s * 1e9))

    def silent(self) -> Silence | None:
        """A node whose loop has not gone round for longer than it may, if there is one.

        Nodes of one group share a loop: while one of them is at announced work, the others are not silent.
        """
        counters, now = self._wiring.counters, monotonic_ns()
        for group in self._groups:
            nodes = [node for node in self._nodes if node.group == group]
            busy_until = max(counters.get(node.name, "busy_until_ns") for node in nodes)
            latest = max(nodes, key=lambda node: counters.get(node.name, "heartbeat_ns"))
            silence = (now - counters.get(latest.name, "heartbeat_ns")) / 1e9
            if now > busy_until and silence > max(node.silence_limit_s for node in nodes):
                return Silence(latest.name, group, silence)
        return None

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
