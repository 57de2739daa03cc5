"""One machine, one process for each placement group, one shared segment that is gone when they are.

Workers are plain ``subprocess`` children with inherited file descriptors; they get plain specs over a pipe.
"""

import time

from penstock.errors import NodeError
from penstock.memory.segment import Segment
from penstock.program.check import check
from penstock.program.graph import Program
from penstock.scheduler.interrupts import Interrupts
from penstock.scheduler.outcome import Outcome, SharedSigns, final_record
from penstock.scheduler.processes import Processes
from penstock.scheduler.supervisor import State, Supervisor, describe
from penstock.scheduler.wiring import Wiring, placement
from penstock.scheduler.worker import WorkerSpec

__all__ = ["launch"]

TICK_S = 0.1
"""The supervisor looks around at least this often; a bell wakes it sooner."""
START_LIMIT_S = 120.0
"""How long a process may take from its start to the first sign of life of its nodes, imports included."""
DRAIN_LIMIT_S = 120.0
END_LIMIT_S = 10.0


def launch(program: Program) -> Outcome:
    """Run a program to its end, one process a placement group.

    Raises:
        NodeError: a process failed; it holds that process's own traceback.
    """
    check(program)
    wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
    segment = Segment.create(wiring.nbytes, "penstock")
    processes = Processes()
    wiring.attach(segment.bytes)
    signs = SharedSigns(wiring, program)
    last = tuple(program.node(name).group for name in program.ends_with)
    supervisor = Supervisor(processes, signs, last=last, drain_limit_s=DRAIN_LIMIT_S, end_limit_s=END_LIMIT_S)
    try:
        with Interrupts() as interrupts:
            signs.expect(START_LIMIT_S)
            _start(program, processes, segment)
            _supervise(supervisor, interrupts, wiring)
        if supervisor.failure is not None:
            ended = supervisor.failure
            raise NodeError(ended.group, ended.detail or describe(ended))
        return Outcome(final_record(wiring, program), interrupts.count > 0, wiring.table())
    finally:
        processes.kill_all()
        segment.close()


def _start(program: Program, processes: Processes, segment: Segment) -> None:
    incarnations = {node.name: number for number, node in enumerate(program.nodes, start=1)}
    for group in program.groups:
        part = placement(program, group)
        own = {node.name: incarnations[node.name] for node in part.nodes}
        threads = max(node.threads for node in part.nodes)
        processes.start(segment, WorkerSpec(part, own), threads)


def _supervise(supervisor: Supervisor, interrupts: Interrupts, wiring: Wiring) -> None:
    """Look around until the run has ended. One interrupt ends it in order, a second one at once."""
    while True:
        seen = wiring.bells.word(0)
        now = time.monotonic()
        if interrupts.count == 1:
            supervisor.stop(now)
        if interrupts.count > 1:
            supervisor.kill()
        if supervisor.tick(now) is State.ENDED:
            return
        # While loops end nobody rings for an exit, and an end should take milliseconds.
        wiring.bells.wait(0, seen, TICK_S if supervisor.state is State.RUNNING else 0.005)
