"""Supervises the processes of a program on this machine until the program has ended. Restarts those that die.

What processes log is added to the log of the run. It does not know how a process is started: a `Starting` does that,
here or on another machine.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.errors import NodeError, StallError
from penstock.memory.segment import Segment
from penstock.metrics.run_log import ProcessLines
from penstock.processes.interrupts import Interrupts
from penstock.processes.log_lines import LogLine
from penstock.processes.starts import Processes
from penstock.processes.worker import WorkerSpec
from penstock.program.graph import Program, Record
from penstock.supervision.contract import Limits
from penstock.supervision.lives import Exit, Restart, describe
from penstock.supervision.outcome import Outcome, final_record
from penstock.supervision.recovery import recover
from penstock.supervision.signs import SharedSigns
from penstock.supervision.supervisor import State, Supervisor
from penstock.wiring.edges import SUPERVISOR, Wiring, placement

__all__ = ["START_LIMIT_S", "Starting", "supervised", "supervised_here"]

TICK_S = 0.1
"""The supervisor checks the processes at least this often. A bell wakes it sooner."""
STANDSTILL_S = 1.0
"""If the supervisor itself comes to no tick for so long, the machine has stood still, and with it all processes."""
START_LIMIT_S = 120.0
"""Longest time from the start of a process to the first sign of life of its nodes, imports included."""
DRAIN_LIMIT_S = 120.0
END_LIMIT_S = 10.0


class Starting(Protocol):
    """Starts and ends the processes of placement groups, by the names of the groups."""

    def start(self, segment: Segment, spec: WorkerSpec, threads: int, imports: Sequence[str] = ()) -> None:
        """Start the worker of a placement group, and do not wait until it runs."""
        ...

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call."""
        ...

    def log_lines(self) -> Sequence[LogLine]:
        """The log lines that processes had sent by the last call of ``exits``, without those returned before."""
        ...

    def running(self) -> Sequence[str]:
        """Groups whose process is running."""
        ...

    def stacks(self, groups: Sequence[str]) -> Mapping[str, str]:
        """Group -> the Python stacks of all threads of its process. All processes are asked at once."""
        ...

    def kill(self, group: str) -> None:
        """End a process. Nothing that it does from now on reaches the segment."""
        ...


def supervised_here(program: Program, processes: Processes) -> Outcome:
    """Run a whole program to its end on this machine, in a segment that ends with it.

    Args:
        program: what to run; checked.
        processes: no other program runs in them. At the end none of them is left.

    Raises:
        NodeError: a process failed; with that process's traceback.
    """
    wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
    segment = Segment.create(wiring.nbytes, "penstock")
    wiring.attach(segment.bytes)
    try:
        return supervised(program, wiring, segment, processes)
    finally:
        processes.clear()
        segment.close()


def supervised(program: Program, wiring: Wiring, segment: Segment, processes: Starting) -> Outcome:
    """Run a program to its end, with one process for each placement group.

    Args:
        program: what to run; checked.
        wiring: the edges of the program, laid out in ``segment``.
        segment: the run's shared memory.
        processes: no other program runs in them. The caller ends those that are left.

    Raises:
        NodeError: a process failed; with that process's traceback.
        StallError: the run as a whole came no further.
    """
    signs = SharedSigns(wiring, program)
    with Interrupts() as interrupts, contextlib.closing(ProcessLines(program.folder)) as log:

        def hear() -> None:
            for line in processes.log_lines():
                log.add(line.process, line.level, line.text, line.times)

        nodes = _Nodes(program, wiring, segment, processes, signs)
        for group in program.groups:
            nodes.start(group)
        supervisor = Supervisor(
            nodes,
            signs,
            ends_with=tuple(program.node(name).group for name in program.ends_with),
            limits=Limits(DRAIN_LIMIT_S, END_LIMIT_S, program.max_restarts, program.stall_limit_s),
            tell=nodes.note,
            spare=nodes.spare,
            now=time.monotonic(),
        )
        _supervise(supervisor, interrupts, wiring, hear)
    if supervisor.failure is not None:
        ended = supervisor.failure
        if not ended.group:
            raise StallError(ended.detail)
        raise NodeError(ended.group, ended.detail or describe(ended))
    return Outcome(final_record(wiring, program), interrupts.count > 0, wiring.all_counters(), tuple(nodes.spared))


def _supervise(supervisor: Supervisor, interrupts: Interrupts, wiring: Wiring, hear: Callable[[], None]) -> None:
    """Supervise the processes until the run has ended. One interrupt ends it in order, a second one at once.

    Args:
        supervisor: of the run.
        interrupts: so far.
        wiring: the structures of the run.
        hear: called after each look at the processes; takes what they have logged.
    """
    looked = time.monotonic()
    while True:
        seen = wiring.bells.word(0)
        now = time.monotonic()
        if now - looked > STANDSTILL_S:
            supervisor.excuse(now - looked)
        if interrupts.count > 1 or (interrupts.count and not _committed(wiring)):
            # A second interrupt, or nothing is committed that a checkpoint could hold.
            supervisor.kill()
        elif interrupts.count:
            wiring.counters.set(SUPERVISOR, "interrupted", 1)
            supervisor.stop(now)
        state = supervisor.tick(now)
        hear()
        if state is State.ENDED:
            return
        looked = time.monotonic()
        # Nobody rings when a process exits, and ending should take milliseconds. So the wait is short then.
        wiring.bells.wait(0, seen, TICK_S if supervisor.state is State.RUNNING else 0.005)


def _committed(wiring: Wiring) -> bool:
    """True if a node has committed a record since this start of the run, or if the program has no records."""
    records = [wiring.record(edge.name) for edge in wiring.edges() if isinstance(edge, Record)]
    return not records or any(record.number() >= 0 for record in records)


class _Nodes:
    """Starts, restarts and recovers the processes of a program's nodes; implements ``contract.RunProcesses``."""

    def __init__(
        self, program: Program, wiring: Wiring, segment: Segment, processes: Starting, signs: SharedSigns
    ) -> None:
        self._program = program
        self._wiring = wiring
        self._segment = segment
        self._processes = processes
        self._signs = signs
        self._number = 0
        self._lives: dict[str, tuple[int, ...]] = {node.name: () for node in program.nodes}
        """Node -> the numbers of its lives so far. A number is used once in a run."""
        self.spared: list[Exit] = []
        self.exits = processes.exits
        self.running = processes.running
        self.stacks = processes.stacks
        self.kill = processes.kill

    def start(self, group: str) -> None:
        """Start the process of a placement group. Each of its nodes begins a new life."""
        part = placement(self._program, group)
        former = {node.name: self._lives[node.name] for node in part.nodes}
        for node in part.nodes:
            self._number += 1
            self._lives[node.name] += (self._number,)
        own = {node.name: self._lives[node.name][-1] for node in part.nodes}
        self._signs.expect(group, START_LIMIT_S)
        threads = max(node.threads for node in part.nodes)
        imports = tuple(dict.fromkeys(name for node in part.nodes for name in node.imports))
        self._processes.start(self._segment, WorkerSpec(part, own, former), threads, imports)

    def recover(self, group: str) -> bool:
        """Recover what the dead process of a group held."""
        own = {node.name: self._lives[node.name][-1] for node in self._program.members(group)}
        return recover(self._wiring, self._program, group, own)

    def note(self, restart: Restart) -> None:
        """Write a restart into the counters, from which the monitor reports it, and its detail into a file."""
        kept = self._keep(restart.ended, f"restart {restart.number}")
        for node in self._program.members(restart.ended.group):
            self._wiring.counters.set(node.name, "ended_by", restart.ended.status)
            self._wiring.counters.set(node.name, "cause", restart.ended.cause)
            self._wiring.counters.set(node.name, "detail_kept", kept)
            self._wiring.counters.set(node.name, "uptime_ms", int(restart.uptime_s * 1e3))
            self._wiring.counters.set(node.name, "restarts", restart.number)
        self._wiring.bells.ring_all()

    def spare(self, ended: Exit) -> None:
        """Note a process that failed while the run ended, when nothing was needed of it any more."""
        self.spared.append(ended)
        self._keep(ended, "while the run ended")

    def _keep(self, ended: Exit, when: str) -> bool:
        """Write the traceback or the stacks into the file. False if there are none, or they could not be written."""
        file = self._program.deaths
        if file is None or not ended.detail:
            return False
        # The run does not need this file, so a full disk must not end it.
        with contextlib.suppress(OSError), file.open("a", encoding="utf-8") as log:
            log.write(f"{ended.group}, {when}:\n{ended.detail.rstrip()}\n\n")
            return True
        return False
