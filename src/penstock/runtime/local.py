"""One machine, one process for each placement group, one shared segment that is gone when they are.

Workers are plain ``subprocess`` children with inherited file descriptors; they get plain specs over a pipe.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence

from penstock.errors import NodeError
from penstock.memory.lifeline import Lifeline
from penstock.memory.segment import Segment
from penstock.program.check import check
from penstock.program.graph import Program
from penstock.scheduler.interrupts import Interrupts
from penstock.scheduler.outcome import Outcome, SharedSigns, final_record
from penstock.scheduler.supervisor import Exit, State, Supervisor, describe
from penstock.scheduler.wiring import Wiring, placement
from penstock.scheduler.worker import COMMAND, STACKS_SIGNAL, WorkerSpec

__all__ = ["launch"]

STACKS_WAIT_S = 0.5
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
    roster = [(node.name, node.group) for node in program.nodes]
    wiring = Wiring(program.edges, roster)
    segment = Segment.create(wiring.nbytes, "penstock")
    wiring.attach(segment.bytes)
    processes = Processes(segment)
    signs = SharedSigns(wiring, program)
    last = tuple(program.node(name).group for name in program.ends_with)
    supervisor = Supervisor(processes, signs, last=last, drain_limit_s=DRAIN_LIMIT_S, end_limit_s=END_LIMIT_S)
    try:
        with Interrupts() as interrupts:
            signs.expect(START_LIMIT_S)
            _start(program, processes)
            _supervise(supervisor, interrupts, wiring)
        if supervisor.failure is not None:
            ended = supervisor.failure
            raise NodeError(ended.group, ended.detail or describe(ended))
        return Outcome(final_record(wiring, program), interrupts.count > 0, wiring.table())
    finally:
        processes.kill_all()
        segment.close()


def _start(program: Program, processes: "Processes") -> None:
    incarnations = {node.name: number for number, node in enumerate(program.nodes, start=1)}
    for group in program.groups:
        part = placement(program, group)
        own = {node.name: incarnations[node.name] for node in part.nodes}
        threads = max(node.threads for node in part.nodes)
        processes.start(WorkerSpec(part, own), threads)


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


class Processes:
    """The worker processes of a run; implements ``supervisor.ProcessTable``."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._errors: dict[str, int] = {}
        self._lifeline = Lifeline()

    def start(self, spec: WorkerSpec, threads: int) -> None:
        """Start the process of a placement group."""
        group = spec.placement.group
        spec_read, spec_write = os.pipe()
        error_read, error_write = os.pipe()
        inherited = (self._segment.fd, spec_read, self._lifeline.fd, error_write)
        numbers = (self._segment.fd, self._segment.nbytes, spec_read, self._lifeline.fd, error_write)
        environment = dict(os.environ)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = str(threads)
        self._running[group] = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *map(str, numbers)],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )
        os.close(spec_read)
        os.close(error_write)
        self._errors[group] = error_read
        # A process that dies before it has read all of this is found by its exit.
        with contextlib.suppress(BrokenPipeError), os.fdopen(spec_write, "wb") as pipe:
            pipe.write(pickle.dumps(sys.path) + pickle.dumps(spec))

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call."""
        gone = [group for group, process in self._running.items() if process.poll() is not None]
        return [self._reap(group) for group in gone]

    def running(self) -> Sequence[str]:
        """Groups whose process still runs."""
        return tuple(self._running)

    def pid(self, group: str) -> int:
        """The process of a group that runs."""
        return self._running[group].pid

    def stacks(self, group: str) -> str:
        """Ask a process where its threads stand, and give it a moment to say so."""
        self._running[group].send_signal(STACKS_SIGNAL)
        time.sleep(STACKS_WAIT_S)
        return self._said(group) or "It did not say where it stands."

    def kill(self, group: str) -> None:
        """End a process now and reap it."""
        process = self._running[group]
        process.kill()
        process.wait()
        self._reap(group)

    def kill_all(self) -> None:
        """End what still runs, and let go of the lifeline."""
        for group in self.running():
            self.kill(group)
        self._lifeline.close()

    def _reap(self, group: str) -> Exit:
        process = self._running.pop(group)
        detail = self._said(group)
        os.close(self._errors.pop(group))
        return Exit(group, process.returncode, detail)

    def _said(self, group: str) -> str:
        """What a process has said in its error pipe. Not up to its end: a child of an environment may hold it open."""
        reader, parts = self._errors[group], []
        os.set_blocking(reader, False)
        with contextlib.suppress(BlockingIOError):
            while part := os.read(reader, 65_536):
                parts.append(part)
        return b"".join(parts).decode(errors="replace")
