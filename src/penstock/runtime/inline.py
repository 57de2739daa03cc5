"""Runs all nodes in this process, one after the other: deterministic, for tests and for pdb."""

import contextlib

from penstock.memory.segment import Segment
from penstock.processes.interrupts import Interrupts
from penstock.processes.starts import Processes
from penstock.program.check import check
from penstock.program.graph import Program
from penstock.scheduler.loop import Loop, Placed
from penstock.supervision.outcome import Outcome, final_record
from penstock.supervision.signs import SharedSigns
from penstock.wiring.edges import SUPERVISOR, Wiring, node_class
from penstock.wiring.ports import NodePorts
from penstock.wiring.trace import OPEN, traces

__all__ = ["launch"]

GROUP = "inline"


class _NoBell:
    """A bell that never sleeps: with one process, nobody would ring it."""

    def word(self) -> int:
        return 0

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return at once."""


def launch(program: Program, _processes: Processes) -> Outcome:
    """Run a program to its end in this process; it needs no other. An exception of a node is raised unchanged."""
    check(program)
    wiring = Wiring(program.edges, [(node.name, GROUP) for node in program.nodes])
    segment = Segment.create(wiring.nbytes, "penstock")
    wiring.attach(segment.bytes)
    trace = traces(program.trace, GROUP)
    placed: list[Placed] = []
    opened: list[NodePorts] = []
    try:
        with Interrupts(patience=1) as interrupts:
            for number, spec in enumerate(program.nodes, start=1):
                node = node_class(spec.kind)(spec.settings)
                ports = NodePorts(wiring, spec.name, GROUP, number, trace=trace.node(spec.name), edges=spec.edges)
                placed.append(Placed(node, ports))
                ports.count("begun")
                with ports.span(OPEN):
                    node.open(ports)
                opened.append(ports)
            for ports in opened:
                ports.begin()
            signs = SharedSigns(wiring, program)

            def ended() -> bool:
                if interrupts.count:
                    wiring.counters.set(SUPERVISOR, "interrupted", 1)
                    signs.stop()
                return signs.finished() and signs.drained(program.groups)

            Loop(placed, _NoBell(), ended).run()
        return Outcome(final_record(wiring, program), interrupts.count > 0, wiring.all_counters())
    finally:
        # Close everything, the nodes in their order, even if closing one of them fails.
        with contextlib.ExitStack() as closing:
            for close in (segment.close, trace.close, *(node.close for node, _ in reversed(placed))):
                closing.callback(close)
