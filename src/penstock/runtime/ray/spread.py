"""Spreads a program over all machines of a Ray cluster: environment nodes by cores, learners in turn.

The launcher's machine is *home*. It runs the first learner and all nodes that do not move, with its share of those that
do, exactly as the local runtime does.
"""

import contextlib
import signal
import time
from collections.abc import Sequence

from penstock.errors import ConfigError
from penstock.memory.segment import Segment
from penstock.processes.starts import Processes
from penstock.processes.supervision import supervised
from penstock.processes.worker import WorkerSpec
from penstock.program.graph import Program
from penstock.runtime.ray.cluster import (
    END_LIMIT_S,
    Joining,
    Machine,
    alone,
    joined,
    machines,
    own_address,
    own_cores,
    refusal,
)
from penstock.runtime.ray.cut import (
    RELAY,
    apart,
    host_program,
    movable,
    movable_learners,
    same_bits,
    sampled,
    with_relay,
)
from penstock.runtime.ray.relay import Relay
from penstock.runtime.ray.shares import shares
from penstock.scheduler.lives import Exit
from penstock.scheduler.outcome import Outcome
from penstock.wiring.edges import Wiring

__all__ = ["run"]

LOOK_S = 2.0
"""How often home looks for machines that have joined the cluster."""


def run(program: Program, processes: Processes) -> Outcome:
    """Run a program with movable nodes; see `penstock.runtime.ray.launch.launch`."""
    with joined(program.address):
        if not alone():
            program = apart(program, own_address())
        hosted, bits = host_program(program), same_bits(program)
        far = machines(hosted, set())
        try:
            present = [machine for machine in far if _takes_part(machine, bits)]
            return _run(with_relay(program), processes, _Cluster(hosted, present, bits))
        finally:
            for machine in far:
                machine.end(END_LIMIT_S)


def _takes_part(machine: Machine, bits: str | None) -> bool:
    """False if the machine is lost while the run begins; Ray may list it for some seconds after its end.

    Raises:
        ConfigError: the machine is there, and cannot be a part of this run.
    """
    try:
        why = refusal(machine, same_bits=bits)
    except ConfigError:
        if machine.lost():
            return False
        raise
    if why is not None:
        raise ConfigError(why)
    return True


class _Cluster:
    """The machines of a run, and those that join while it goes on.

    Args:
        program: of each host.
        machines: the first ones. Those that join are added to this list.
        bits: why machines must compute the same bits; ``None`` if they need not.
    """

    def __init__(self, program: Program, machines: list[Machine], bits: str | None) -> None:
        self._program = program
        self._bits = bits
        self._known = {machine.id for machine in machines}
        self._looked = time.monotonic()
        self._starting: list[Joining] = []
        self._all = machines
        self.machines = list(machines)
        """Machines that take part."""
        self.own_cores = own_cores()

    def joined(self) -> tuple[list[Machine], list[str]]:
        """Machines that have joined since the last call, and a line for each that cannot take part."""
        now = time.monotonic()
        if now - self._looked > LOOK_S:
            self._looked = now
            for machine in machines(self._program, self._known):
                self._known.add(machine.id)
                self._all.append(machine)
                self._starting.append(Joining(machine, same_bits=self._bits))
        ready = [one for one in self._starting if one.answered]
        self._starting = [one for one in self._starting if not one.answered]
        refused = [one.refusal for one in ready if one.refusal is not None]
        found = [one.machine for one in ready if one.refusal is None]
        self.machines += found
        return found, refused


def _run(program: Program, processes: Processes, cluster: _Cluster) -> Outcome:
    wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
    segment = Segment.create(wiring.nbytes, "penstock")
    wiring.attach(segment.bytes)
    relay = Relay(program, wiring)
    try:
        return supervised(program, wiring, segment, _Spread(program, processes, relay, cluster))
    finally:
        relay.close()
        processes.clear()
        segment.close()


class _Spread:
    """Processes here and on hosts, as one; implements `penstock.processes.supervision.Starting`."""

    def __init__(self, program: Program, here: Processes, relay: Relay, cluster: _Cluster) -> None:
        self._program = program
        self._here = here
        self._relay = relay
        self._cluster = cluster
        self._moved: list[Exit] = []
        groups = movable(program)
        places = [place for place, count in self._shares(len(groups)) for _ in range(count)]
        self._wanted: dict[str, Machine | None] = dict(zip(groups, places, strict=True))
        """Group -> the machine that is to run it; ``None``: home."""
        self._shared = groups
        """The groups that move when a machine joins. Learners stay where they are."""
        learners = movable_learners(program)
        # Home holds the whole table, and in it the shard of the first learner. The other shards are on other machines.
        turns = cluster.machines if sampled(program) is not None and cluster.machines else (None, *cluster.machines)
        first = len(turns) - len(cluster.machines)
        self._wanted |= {group: turns[number % len(turns)] for number, group in enumerate(learners, start=first)}

    def _shares(self, count: int) -> list[tuple[Machine | None, int]]:
        """How many groups each machine is to run; ``None`` stands for home."""
        lost = self._relay.lost()
        left = [machine for machine in self._cluster.machines if machine not in lost]
        counts = shares(count, [self._cluster.own_cores, *(machine.cores for machine in left)])
        return list(zip((None, *left), counts, strict=True))

    def start(self, segment: Segment, spec: WorkerSpec, threads: int, imports: Sequence[str] = ()) -> None:
        """Start the worker of a placement group where it is to run."""
        group = spec.placement.group
        if group == RELAY:
            self._relay.begin(spec.incarnations[RELAY], spec.former[RELAY])
            return
        machine = self._place(group)
        if machine is None:
            self._here.start(segment, spec, threads, imports)
        else:
            self._relay.start(machine, spec, threads, imports)

    def _place(self, group: str) -> Machine | None:
        """The machine for a group. Where its own was lost: the one with the fewest groups for its cores."""
        wanted, lost = self._wanted.get(group), self._relay.lost()
        if wanted is None or wanted not in lost:
            return wanted
        left = [machine for machine in self._cluster.machines if machine not in lost]
        counts = {machine: sum(where is machine for where in self._wanted.values()) for machine in left}
        found = min(left, key=lambda machine: counts[machine] / machine.cores, default=None)
        self._wanted[group] = found
        return found

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call, here and elsewhere."""
        joined, refused = self._cluster.joined()
        if refused and self._program.deaths is not None:
            # The run does not need this file, so a full disk must not end it.
            with contextlib.suppress(OSError), self._program.deaths.open("a", encoding="utf-8") as log:
                log.writelines(f"{line}\n\n" for line in refused)
        if joined and self._program.max_restarts:
            self._share_again()
        moved, self._moved = self._moved, []
        return [*self._here.exits(), *self._relay.exits(), *moved]

    def _share_again(self) -> None:
        """Move as few groups as it takes to give each machine its share. Each begins its next life there."""
        counts = dict(self._shares(len(self._shared)))
        surplus = []
        for group in self._shared:
            place = self._wanted[group]
            if counts.get(place, 0):
                counts[place] -= 1
            else:
                surplus.append(group)
        places = [place for place, count in counts.items() for _ in range(count)]
        for group, place in zip(surplus, places, strict=True):
            self._wanted[group] = place
            if group in self.running():
                self.kill(group)
                self._moved.append(Exit(group, -signal.SIGTERM, "it moves to a machine that has joined"))

    def running(self) -> Sequence[str]:
        """Groups that run, here and elsewhere."""
        return [*self._here.running(), *self._relay.running()]

    def stacks(self, group: str) -> str:
        """The stacks of a process."""
        machine = self._relay.machine_of(group)
        if machine is not None:
            return machine.stacks(group)
        return (
            "It joins machines of the cluster, in a thread of the launcher."
            if group == RELAY
            else self._here.stacks(group)
        )

    def kill(self, group: str) -> None:
        """End a process."""
        if group == RELAY:
            self._relay.close()
        elif self._relay.machine_of(group) is not None:
            self._relay.kill(group)
        else:
            self._here.kill(group)
