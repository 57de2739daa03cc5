"""Relay: joins the hosts of a run with the run's own segment, in a thread of the launcher.

It delivers rollouts and gradients in the name of the nodes that hosts run, and hands to the hosts what is published for
these nodes.
It also starts and ends nodes on hosts for the supervisor, and reports how they ended. The memory of rows that stay on
their hosts it gives back to the system.
"""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.cluster.calls import COLLECT_AGAIN, Calls, Reply
from penstock.cluster.cut import RELAY
from penstock.cluster.deliveries import Deliveries
from penstock.cluster.fetches import Fetches
from penstock.cluster.machines import Machine
from penstock.cluster.messages import Batch
from penstock.cluster.no_room import HOME, NoRoom
from penstock.cluster.publications import Publications
from penstock.cluster.ray_errors import machine_error
from penstock.cluster.rings import FoundShard, News
from penstock.cluster.stand_in import FollowerStandIn, StandIn, stand_in
from penstock.errors import LostError, PenstockError, ResourceError
from penstock.memory.doorbell import CEILING_S
from penstock.processes.log_lines import LogLine
from penstock.processes.worker import WorkerSpec
from penstock.program.graph import Program
from penstock.supervision.lives import HOPELESS, Exit
from penstock.types import Array, Cause
from penstock.wiring.edges import Wiring
from penstock.wiring.ports import NodePorts

__all__ = ["Relay"]

SILENCE_S = 15.0
"""A machine that tells nothing for so long is given up. Its nodes go on elsewhere.

- Longer than `penstock.cluster.host.SILENCE_S`, after which a silent machine ends its nodes itself.
- So much shorter than 30 s that a learner has started again elsewhere 30 s after the loss.
"""
ANSWER_LIMIT_S = 120.0
"""How long an answer with rollouts may be on its way from a machine that gives signs of life. Links may be slow."""
START_SILENCE_S = 120.0
"""The same for a machine that has told nothing yet: its Python has to start."""
QUIET_S = 1.0
"""A machine answers at least every half second. If it is silent for longer than this, its nodes' state is unknown."""
LATE_S = 5.0
"""If the relay looks at its machines so much later than the last time, its own process stood still meanwhile."""
LET_GO_S = 1.0
"""Seconds between two looks at rows whose memory may be given back, because they stay on their hosts."""
RETRY_S = 0.002
"""Seconds until a rollout that found no free slot is tried again."""
PUBLICATIONS = "publications"
"""The name in `NoRoom` of all publications that wait for room."""
LOST = -9
"""Exit status of a node whose machine was lost: as if killed from outside, which is not its own fault."""


class _Placed(NamedTuple):
    """A node that runs on a machine."""

    machine: Machine
    node: StandIn


class Relay:
    """The thread, and its calls for the supervisor. All of these may be called from another thread.

    Args:
        program: of home.
        wiring: of home.
        give_back: gives a part of home's memory back to the system, as `penstock.memory.segment.Segment.give_back`.
    """

    def __init__(self, program: Program, wiring: Wiring, give_back: Callable[[Array], object]) -> None:
        self._program = program
        self._wiring = wiring
        self._publications = Publications(program, wiring, give_back)
        self._fetches = Fetches(program)
        self._deliveries = Deliveries(self._fetches, self._publications)
        self._bell = wiring.bell_of(RELAY)
        self._lock = threading.RLock()
        self._placed: dict[str, _Placed] = {}
        self._ended: list[Exit] = []
        self._log_lines: list[LogLine] = []
        self._heard: dict[Machine, float] = {}
        """Machine -> when it last told something. Of a new one later than that: see `START_SILENCE_S`."""
        self._answered: dict[Machine, float] = {}
        """Machine -> when it last told what it has, with the state of its nodes."""
        self._asked_for_sign: set[Machine] = set()
        """Machines that are asked for a sign of life, and have given none."""
        self._turned = time.monotonic()
        """When this process last showed that it does not stand still."""
        self._let_go = self._turned
        """When memory was last given back."""
        self._collecting: set[Machine] = set()
        """Machines that are asked to collect, and have not answered."""
        self._showing: set[str] = set()
        """Groups of learners to which rollouts are under way."""
        self._lost: set[Machine] = set()
        """Machines that were given up."""
        self._no_room = NoRoom(program.stall_limit_s)
        self._calls = Calls(self._no_room, self._lost, lambda: wiring.bells.ring(self._bell))
        self._thread: threading.Thread | None = None
        self._closing = False

    def begin(self, life: int, former: tuple[int, ...]) -> None:
        """Start the thread."""
        ports = NodePorts(self._wiring, RELAY, RELAY, life, former)
        ports.count("begun")
        self._closing = False
        self._thread = threading.Thread(target=self._run, args=(ports,), name=RELAY)
        self._thread.start()

    def remember(self, machine: Machine, found: Mapping[int, FoundShard]) -> None:
        """Note which rows of the table a resumed run has found on a machine: by shard. Call this before `begin`."""
        self._publications.remember(machine, found)

    def rest(self, machine: Machine, shards: Sequence[int], taken: Sequence[int]) -> Iterator[News]:
        """All that a machine lacks of the slots of these shards below ``taken``. Call it after `close`."""
        yield from self._publications.rest(machine, shards, taken)

    def start(self, machine: Machine, spec: WorkerSpec, threads: int, imports: Sequence[str]) -> None:
        """Run the node of a placement group on a machine."""
        (node,) = spec.placement.nodes
        with self._lock:
            if machine in self._lost:
                # Race: 1. The supervisor looked which machines are lost, and chose this one. 2. It was given up.
                lost = f"{machine.name} was given up before {node.name} had started there"
                self._ended.append(Exit(spec.placement.group, LOST, lost, Cause.LOST))
                self._wiring.bells.ring(0)
                return
            placed = stand_in(self._program, self._wiring, node, spec.lives[node.name], spec.former[node.name])
            group = spec.placement.group
            task = placed.task(threads, tuple(imports))._replace(apart=self._fetches.apart(group))
            self._placed[group] = _Placed(machine, placed)
            self._calls.make(machine, "start", group, placed.there, task)
            if machine not in self._collecting:
                # A machine without nodes was not asked for anything, so its silence meant nothing.
                # Race: the supervisor may go on before the thread does, after this process stood still.
                now = self._look()
                self._heard[machine] = now if machine in self._heard else now + START_SILENCE_S - SILENCE_S
                self._answered[machine] = self._heard[machine]
                self._collect(machine)
        self._wiring.bells.ring(self._bell)

    def exits(self) -> list[Exit]:
        """Nodes on hosts that have ended since the last call; also the relay's own failure."""
        with self._lock:
            found, self._ended = self._ended, []
            return found

    def log_lines(self) -> list[LogLine]:
        """What processes on hosts have logged since the last call."""
        with self._lock:
            found, self._log_lines = self._log_lines, []
            return found

    def running(self) -> tuple[str, ...]:
        """Groups that run on hosts, and the relay itself."""
        with self._lock:
            own = (RELAY,) if self._thread is not None and self._thread.is_alive() else ()
            return (*own, *self._placed)

    def machine_of(self, group: str) -> Machine | None:
        """The machine that runs a group; ``None`` if no host runs it."""
        with self._lock:
            placed = self._placed.get(group)
            return None if placed is None else placed.machine

    def lost(self) -> set[Machine]:
        """Machines that were given up."""
        with self._lock:
            return set(self._lost)

    def kill(self, group: str) -> None:
        """End a node: from now on nothing of this life is delivered. Its process ends a little later.

        An end of this life that the supervisor has not heard of is forgotten: it would count for the next life.
        """
        with self._lock:
            self._ended = [ended for ended in self._ended if ended.group != group]
            placed = self._placed.pop(group, None)
            self._showing.discard(group)
            if placed is not None and placed.machine not in self._lost:
                self._calls.make(placed.machine, "stop", group, placed.node.there, placed.node.life)

    def fail(self, why: str) -> None:
        """The run cannot go on here: it ends."""
        self._fail(LostError(why))

    def _fail(self, error: PenstockError) -> None:
        with self._lock:
            self._ended.append(Exit(RELAY, HOPELESS, "".join(traceback.format_exception_only(error))))
        self._wiring.bells.ring(0)

    def give_up(self) -> None:
        """End the thread, which stands still. Another one is to begin, and nodes on hosts are to begin anew."""
        with self._lock:
            for group in list(self._placed):
                self.kill(group)
                self._ended.append(Exit(group, LOST, "the relay stood still and was ended", Cause.LOST))
        self.close()

    def close(self) -> None:
        """End the thread. The run has ended, or is given up."""
        with self._lock:
            self._placed.clear()
            self._deliveries.waiting.clear()
        if self._thread is not None:
            self._closing = True
            self._wiring.bells.ring(self._bell)
            self._thread.join()

    def _run(self, ports: NodePorts) -> None:
        bells = self._wiring.bells
        try:
            ports.begin()
            while not (self._closing or self._wiring.ended()):
                seen = bells.word(self._bell)
                ports.beat()
                with self._lock:
                    self._turn()
                    pending = bool(self._deliveries.waiting)
                bells.wait(self._bell, seen, RETRY_S if pending else CEILING_S)
        except Exception:  # noqa: BLE001 - the supervisor gets to know every error
            with self._lock:
                self._ended.append(Exit(RELAY, HOPELESS, traceback.format_exc()))
        finally:
            with self._lock:
                self._placed.clear()
            bells.ring(0)

    def _look(self) -> float:
        """The time. A standstill of this process (a paused machine, a swap storm) counts for no machine's silence."""
        now = time.monotonic()
        stood_still = max(0.0, now - self._turned - LATE_S)
        self._turned = now
        for times in (self._heard, self._answered):
            for machine in times:
                times[machine] += stood_still
        return now

    def _turn(self) -> None:
        now = self._look()
        for reply in self._calls.replies(now):
            self._hear(reply)
        self._calls.make_again(now)
        self._publish(now)
        self._deliver()
        self._fetch()
        self._show()
        for machine in {placed.machine for placed in self._placed.values()} - self._collecting:
            self._collect(machine)
        self._ask_for_signs(now)
        self._release()
        for placed in self._placed.values():
            if now - self._answered[placed.machine] > QUIET_S or self._calls.keeps_back(placed.machine):
                placed.node.count_as_alive()
        if now - self._let_go > LET_GO_S:
            self._let_go = now
            self._publications.let_go()
        for machine, heard in list(self._heard.items()):
            if now - heard > SILENCE_S and machine in self._collecting:
                self._lose(machine, f"{machine.name} told nothing for {SILENCE_S:.0f} s")
            elif now - self._answered[machine] > ANSWER_LIMIT_S and machine in self._collecting:
                self._lose(machine, f"an answer of {machine.name} did not come within {ANSWER_LIMIT_S:.0f} s")
        self._tell_of_room(now)

    def _tell_of_room(self, now: float) -> None:
        """Tell the user once that an object store is full. If the run has waited for too long, it ends."""
        if line := self._no_room.untold():
            # This process is no worker, whose lines would come to the console and into the log by themselves.
            logging.getLogger(__name__).warning("%s", line)
            self._log_lines.append(LogLine(RELAY, "WARNING", line, 1))
            self._wiring.bells.ring(0)
        if why := self._no_room.given_up(now):
            self._fail(ResourceError(why))

    def _machines(self) -> dict[str, Machine]:
        """Node -> the host that runs it."""
        return {one.node.name: one.machine for one in self._placed.values() if one.machine not in self._lost}

    def _publish(self, now: float) -> None:
        """Hand the latest version of each board to the hosts whose nodes read it."""
        if not self._no_room.due(PUBLICATIONS, now):
            return
        for machine, board, publication, rollouts in self._publications.due(self._machines()):
            self._calls.make(machine, "publish", board, board, publication, rollouts)
        if self._publications.no_room:
            self._no_room.add(PUBLICATIONS, HOME, now)
        else:
            self._no_room.remove(PUBLICATIONS)

    def _fetch(self) -> None:
        """Have the observations of rollouts that wait brought to where their learner runs."""
        for number, machine, method, arguments in self._fetches.due(self._deliveries.waiting, self._machines()):
            self._calls.make(machine, method, str(number), *arguments)

    def _show(self) -> None:
        """Hand new rollouts to the learners that look for them by themselves, in a stream or in a table."""
        for group, (machine, node) in self._placed.items():
            if isinstance(node, FollowerStandIn) and node.started and group not in self._showing:
                rollouts = node.unseen()
                if rollouts:
                    self._showing.add(group)
                    self._calls.make(machine, "show", group, group, node.life, rollouts)
        sampling = {
            one.node.name: one.machine
            for one in self._placed.values()
            if isinstance(one.node, FollowerStandIn) and one.machine not in self._lost
        }
        for machine, news in self._publications.feeds(sampling):
            self._calls.make(machine, "feed", "", news)

    def _collect(self, machine: Machine) -> None:
        """Ask a host for what it has. The rollouts that were delivered since go with the question."""
        if machine in self._lost:
            return
        self._collecting.add(machine)
        self._calls.make(machine, "collect", "", self._deliveries.freed_on(machine))

    def _ask_for_signs(self, now: float) -> None:
        """Ask machines whose answer is on its way for a sign of life: a large one may take long over a slow link.

        To the machine the question is a sign that home lives.
        """
        for machine in self._collecting - self._asked_for_sign:
            if now - self._heard[machine] > QUIET_S:
                self._asked_for_sign.add(machine)
                self._calls.make(machine, "give_sign", "")

    def _release(self) -> None:
        """Tell hosts at once which slots are free, if they are asked for rollouts already: a node may wait for one."""
        for machine, freed in self._deliveries.freed():
            if machine not in self._lost:
                self._calls.make(machine, "release", "", freed)

    def _hear(self, reply: Reply) -> None:
        if reply.error is not None:
            why, own = machine_error(reply.error)
            if own:
                raise reply.error
            self._lose(reply.machine, f"{reply.machine.name} was lost: {why}")
            return
        self._heard[reply.machine] = time.monotonic()
        if reply.call == "publish":
            self._publications.arrived(reply.machine, reply.about, reply.result)
        elif reply.call == "start":
            placed = self._placed.get(reply.about)
            if placed is not None and isinstance(placed.node, FollowerStandIn) and placed.node.life == reply.result:
                placed.node.started = True
        elif reply.call == "feed":
            self._publications.fed(reply.machine)
        elif reply.call in {"fetch", "observations"}:
            self._fetches.answered(int(reply.about), reply.result)
        elif reply.call == "show":
            self._showing.discard(reply.about)
        elif reply.call in {"collect", COLLECT_AGAIN}:
            self._collecting.discard(reply.machine)
            self._answered[reply.machine] = self._heard[reply.machine]
            self._take(reply.machine, reply.result)
        elif reply.call == "give_sign":
            self._asked_for_sign.discard(reply.machine)

    def _take(self, machine: Machine, batch: Batch) -> None:
        groups = {placed.node.there: group for group, placed in self._placed.items() if placed.machine is machine}
        for there, vitals in batch.vitals.items():
            placed = self._placed.get(groups.get(there, ""))
            if placed is not None and placed.node.life == vitals.life:
                placed.node.see(vitals)
        for line in batch.log_lines:
            process = groups.get(line.process, line.process)
            self._log_lines.append(line._replace(process=f"{process} on {machine.name}"))
        self._deliveries.take(machine, batch.filled)
        for life, ended in batch.exits:
            group = groups.get(ended.group, "")
            placed = self._placed.get(group)
            if placed is not None and placed.node.life == life:
                # Deliver now what the ended node has finished: the next life begins after it. Rollouts that cannot be
                # delivered now, for lack of a free slot or of fetched observations, are collected again.
                self._deliver()
                del self._placed[group]
                self._showing.discard(group)
                where = f"On {machine.name}:\n" if ended.detail else ""
                self._ended.append(ended._replace(group=group, detail=where + ended.detail))
                self._wiring.bells.ring(0)

    def _deliver(self) -> None:
        """Deliver what came of nodes that still run."""
        self._deliveries.deliver({group: placed.node for group, placed in self._placed.items()})

    def _lose(self, machine: Machine, why: str) -> None:
        """Give a machine up. Its nodes count as killed from outside."""
        self._lost.add(machine)
        self._collecting.discard(machine)
        self._asked_for_sign.discard(machine)
        self._fetches.lose(machine)
        loss = self._publications.lose(machine)
        if loss.rows:
            self._wiring.counters.add(RELAY, "lost", loss.rows)
            why += f"; {loss.rows:,} rows of the replay table are lost with it (--table_on learners)"
        if loss.no_room:
            why += "; Ray's object store is full, so what goes on elsewhere may wait for copies that it had"
        for group, placed in list(self._placed.items()):
            if placed.machine is machine:
                del self._placed[group]
                self._showing.discard(group)
                self._ended.append(Exit(group, LOST, why, Cause.LOST))
        machine.end()
        self._wiring.bells.ring(0)
