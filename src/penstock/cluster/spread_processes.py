"""The processes of a spread run, here and on hosts, as one: where each placement group runs, also after a loss."""

import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from penstock.cluster.claims import Claims
from penstock.cluster.cut import RELAY
from penstock.cluster.joining import Members
from penstock.cluster.machines import Machine, stacks_on
from penstock.cluster.movable import movable_envs, ranking
from penstock.cluster.places import Free, Gpus, answering, asked_by, env_room, env_shares, first_places, free_of, rooms
from penstock.cluster.relay import Relay
from penstock.cluster.seats import Seats, names_on_hosts, seats
from penstock.cluster.troubles import write_down
from penstock.config.fields import amounts_text
from penstock.errors import PenstockError
from penstock.memory.segment import Segment
from penstock.processes.log_lines import LogLine
from penstock.processes.starts import Processes
from penstock.processes.worker import WorkerSpec
from penstock.program.graph import Program
from penstock.supervision.lives import Exit
from penstock.types import Cause

__all__ = ["SpreadProcesses"]


class SpreadProcesses:
    """Processes here and on hosts, as one; implements `penstock.processes.supervised.Starting`."""

    def __init__(self, program: Program, here: Processes, relay: Relay, cluster: Members, claims: Claims) -> None:
        self._program = program
        self._here = here
        self._relay = relay
        self._cluster = cluster
        self._claims = claims
        self._moved: list[Exit] = []
        """Ends that the supervisor is to hear of, so that it starts these groups where they are to run now."""
        self._names = names_on_hosts(program)
        self._shared = movable_envs(program)
        """The groups that move when a machine joins. Learners stay where they are."""
        self._ranking = ranking(program)
        places = first_places(program, [cluster.home, *(machine.offer for machine in cluster.machines)])
        turns = (None, *cluster.machines)
        self._wanted: dict[str, Machine | None] = {group: turns[place] for group, place in places.items()}
        """Group -> the machine that is to run it; ``None``: home. Policy nodes have seats, and stand here meanwhile."""
        groups = seats(program)
        self._seats: Seats[Machine | None] = Seats(None, groups)
        self._answering = tuple(chain.from_iterable(groups))
        """The policy nodes of all seats."""
        for group in self._shared:
            self._take_seat(self._wanted[group])
        self._gpus = Gpus()
        self._kept: dict[str, None] = {}
        """Groups for which Ray keeps on their machine what they ask for, in that order. The others share it there."""
        # Environment processes get what policy nodes leave.
        self._claim(sorted(self._wanted, key=self._shared.__contains__))
        claims.wait({group: asked_by(program, group) for group in self._wanted})
        self._ask()

    def _claim(self, groups: Iterable[str]) -> None:
        """Claim on its machine what each group asks for, if there is room."""
        for group in groups:
            place, asked = self._wanted[group], asked_by(self._program, group)
            self._kept.pop(group, None)
            there = [other for other in self._kept if self._wanted[other] is place]
            if rooms(self._beside(place, there), asked) >= 1:
                self._kept[group] = None
                self._claims.take(group, place, asked)
            else:
                # That of a policy node may be on the machine that had its seat before.
                self._claims.release(group)

    def _ask(self) -> None:
        """Ask for machines for the groups that have no room. Call it after all claims: it would take their room."""
        # Policy nodes ask for their own machine only.
        for group in self._wanted.keys() - self._kept.keys() - {*self._answering}:
            self._claims.ask(group, asked_by(self._program, group))

    def place_of(self, group: str) -> Machine | None:
        """The machine that is to run a group; ``None``: home."""
        return self._wanted.get(group)

    def left(self) -> list[Machine]:
        """Machines that are not lost."""
        lost = self._relay.lost()
        return [machine for machine in self._cluster.machines if machine not in lost]

    def _beside(self, place: Machine | None, groups: Iterable[str] = ()) -> Free:
        """What a machine has left beside these groups."""
        resources = (self._cluster.home if place is None else place.offer).resources
        return free_of(resources, [asked_by(self._program, group) for group in groups])

    def _free(self, place: Machine | None, without: Sequence[str] = ()) -> Free:
        """What a machine has left beside the groups that are to run there. ``without``: groups that do not count."""
        return self._beside(
            place, [group for group, where in self._wanted.items() if where is place and group not in without]
        )

    def _shares(self) -> list[tuple[Machine | None, int]]:
        """How many of the groups that move each machine is to run; ``None`` stands for home."""
        places = (None, *self.left())
        others = (*self._shared, *self._answering)
        counts = env_shares(self._program, [self._free(place, others) for place in places])
        return list(zip(places, counts, strict=True))

    def start(self, segment: Segment, spec: WorkerSpec, threads: int, imports: Sequence[str] = ()) -> None:
        """Start the worker of a placement group where it is to run."""
        group = spec.placement.group
        if group == RELAY:
            self._relay.begin(spec.lives[RELAY], spec.former[RELAY])
            return
        if group in self._seats:
            # Race: 1. A policy node dies, and its next life is due. 2. Its seat is taken, which asks for a start, too.
            # 3. This is the start of the next life: forget the other one.
            self._moved = [ended for ended in self._moved if ended.group != group]
            if not self._seats.taken(group):
                return
        machine = self._place(group)
        if group in self._shared:
            self._have_answerers(machine)
        spec = self._with_gpus(spec, machine)
        if machine is None:
            self._here.start(segment, spec, threads, imports)
        else:
            self._relay.start(machine, spec, threads, imports)

    def _used(self) -> set[Machine | None]:
        """The machines that are to run environment nodes; ``None`` stands for home."""
        return {self._wanted[group] for group in self._shared} - self._relay.lost()

    def _have_answerers(self, place: Machine | None) -> None:
        """See that a machine that runs environment nodes has policy nodes, if these do not act by themselves."""
        why = "a machine is to run environments, and has no policy node"
        needed = self._take_seat(place)
        self._claim(needed)
        self._moved += [Exit(group, -signal.SIGTERM, why, Cause.NEEDED) for group in needed]

    def _take_seat(self, place: Machine | None) -> tuple[str, ...]:
        """Give a machine that is to run environment nodes a seat. Returns the policy nodes that are to start there."""
        needed = self._seats.take(place, self._used())
        self._wanted |= dict.fromkeys(needed, place)
        return needed

    def _with_gpus(self, spec: WorkerSpec, place: Machine | None) -> WorkerSpec:
        """The spec with the next GPU of this machine for each node that asks for one; ``None``: home."""
        nodes = tuple(
            node if node.gpu is None else replace(node, gpu=self._gpus.of(node.name, place))
            for node in spec.placement.nodes
        )
        return spec._replace(placement=replace(spec.placement, nodes=nodes))

    def _place(self, group: str) -> Machine | None:
        """The machine for a group; ``None``: home. That of a policy node is the one that has its seat.

        If its own machine was lost:

        1. Take the machines with room for what it asks for. If there is none, those that would have room if they ran
           nothing else.
        2. Of these choose the one with the fewest groups for its cores, and home only if there is no other.

        Raises:
            PenstockError: no machine that is left has what the group asks for.
        """
        if group in self._seats:
            return self._seats.place(group)
        wanted = self._wanted.get(group)
        if wanted is None or wanted not in self._relay.lost():
            return wanted
        able = [place for place in (*self.left(), None) if self._fits(group, self._beside(place))]
        if not able:
            raise PenstockError(f"{wanted.name} was lost, and no other has {self._asked_text(group)}")
        if group in self._ranking:
            able = self._with_others(group, able)
        # An environment process counts the policy nodes of its machine itself.
        counted = self._answering if group in self._shared else ()
        roomy = [place for place in able if self._fits(group, self._free(place, counted))]
        others = [place for place in roomy or able if place is not None]
        self._wanted[group] = min(others, key=self._load, default=None)
        self._claim([group])
        self._ask()
        return self._wanted[group]

    def _fits(self, group: str, free: Free) -> bool:
        """Whether a group has room on a machine; an environment process needs it for policy nodes, too."""
        if group in self._shared:
            return env_room(self._program, free) >= 1
        return rooms(free, asked_by(self._program, group)) >= 1

    def _asked_text(self, group: str) -> str:
        """What a group asks for, as an error names it."""
        asked = asked_by(self._program, group)
        beside = answering(self._program) if group in self._shared else []
        amounts = {
            name: sum(one.get(name, 0.0) for one in (asked, *beside)) for one in (asked, *beside) for name in one
        }
        askers = f"{group} and policy nodes ask" if beside else f"{group} asks"
        return f"{amounts_text(amounts)}, which {askers} for"

    def _with_others(self, group: str, able: list[Machine | None]) -> list[Machine | None]:
        """The machines among ``able`` for a learner that ranks the rows of a table: home alone, or hosts alone.

        The priorities that a learner at home gives do not reach any host. So such learners run either all at home, or
        all on hosts.
        """
        hosts = [place for place in able if place is not None]
        at_home = any(self._wanted[other] is None for other in self._ranking if other != group)
        return [None] if at_home or not hosts else [*hosts]

    def _load(self, machine: Machine) -> float:
        """Groups for each core of a machine."""
        there = [group for group, where in self._wanted.items() if where is machine and group not in self._seats]
        count, cores = len(there), machine.offer.resources.get("cpu", 0.0)
        return count / cores if cores else math.inf

    def exits(self) -> Sequence[Exit]:
        """Processes that have ended since the last call, here and elsewhere."""
        joined, refused = self._cluster.joined(self._relay.lost())
        write_down(self._program.deaths, refused)
        if joined and self._program.max_restarts:
            self._share_again()
        moved, self._moved = self._moved, []
        for ended in moved:
            if ended.group in self.running():
                self.kill(ended.group)
        there = self._relay.exits()
        # A policy node whose machine was lost begins nowhere. The environment nodes that it answered go on elsewhere,
        # and a machine that lacks policy nodes for them takes a seat.
        left = [ended for ended in there if ended.group in self._seats and ended.cause is Cause.LOST]
        for group in {ended.group for ended in left}:
            # Race: another machine may have taken its seat, and claimed for it there.
            if self._wanted[group] in self._relay.lost():
                self._claims.release(group)
                self._kept.pop(group, None)
        return [*self._here.exits(), *(ended for ended in there if ended not in left), *moved]

    def log_lines(self) -> Sequence[LogLine]:
        """What processes have logged, here and elsewhere."""
        return [*self._here.log_lines(), *self._relay.log_lines()]

    def _share_again(self) -> None:
        """Move as few groups as it takes to give each machine its share. Each begins its next life there."""
        counts = dict(self._shares())
        if sum(counts.values()) < len(self._shared):
            return
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
                self._moved.append(Exit(group, -signal.SIGTERM, "it moves to a machine that has joined", Cause.MOVED))
        # Those that stay and have no room may have it now.
        self._claim((*surplus, *(group for group in self._shared if group not in self._kept)))
        self._ask()

    def running(self) -> Sequence[str]:
        """Groups that run, here and elsewhere."""
        return [*self._here.running(), *self._relay.running()]

    def stacks(self, groups: Sequence[str]) -> Mapping[str, str]:
        """Group -> the stacks of its process."""
        there: dict[Machine, dict[str, str]] = {}
        here = []
        for group in groups:
            machine = self._relay.machine_of(group)
            if machine is not None:
                there.setdefault(machine, {})[self._names.get(group, group)] = group
            elif group != RELAY:
                # Race: 1. The supervisor has seen that a node runs elsewhere. 2. It ends, and the relay forgets it.
                # 3. No such group is known here, so its text says that it has ended.
                here.append(group)
        found = {RELAY: "It joins machines of the cluster, in a thread of the launcher."}
        found |= stacks_on(there) | self._here.stacks(here)
        return {group: found[group] for group in groups}

    def kill(self, group: str) -> None:
        """End a process."""
        if group == RELAY:
            self._relay.give_up()
        else:
            if self._relay.machine_of(group) is None:
                self._here.kill(group)
            # Also where its machine is lost: the relay may still have to tell of that.
            self._relay.kill(group)
