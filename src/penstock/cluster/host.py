"""A host: runs processes of a run on another machine, over shared memory of its own.

It is the class of a Ray actor. It collects finished rollouts and gradients for home, and publishes what home sends.
Home says which nodes run here, and what becomes of one that dies. On its own, a host only ends its processes if home is
silent.
"""

import asyncio
import math
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.cluster.crossing import POLICY, carried, viewed
from penstock.cluster.cut import RELAY
from penstock.cluster.fetched import WantedRollout
from penstock.cluster.followers import Followers
from penstock.cluster.host_calls import observations_from
from penstock.cluster.hosted_table import HostedTable
from penstock.cluster.lane_pasts import LanePasts
from penstock.cluster.messages import Batch, Facts, FilledSlot, FreeSlot, Publication, SlotCopy, Task, Vitals, facts
from penstock.cluster.observation_fields import observation_fields, only, without
from penstock.cluster.open_questions import OpenQuestions
from penstock.cluster.parcels import packed, unpack
from penstock.cluster.rings import PART_BYTES, FoundShard, News
from penstock.errors import ResourceError
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream as StreamMemory
from penstock.processes.starts import Processes
from penstock.processes.supervised import START_LIMIT_S
from penstock.processes.worker import WorkerSpec
from penstock.program.graph import NodeSpec, Program
from penstock.replay.shard_file import ShardMark
from penstock.saved_runs.shard_marks import ShardName
from penstock.supervision.lives import Exit
from penstock.types import Array, Cause
from penstock.wiring.edges import SUPERVISOR, Wiring, placement

__all__ = ["Host"]

REPLY_S = 0.5
"""A host answers at least this often. The answer is its sign of life."""
LOOK_S = 0.1
"""A host looks for processes that have ended at least this often."""
OWNER = (1 << 20) - 1
"""The relay's number as the reader of streams. Lives of nodes are numbered from 1 on."""
END_S = 2.0
"""Seconds that processes have to close their environments."""
SILENCE_S = 10.0
"""If home asks for nothing for so long, the processes end: home may be lost, and the run then goes on elsewhere."""
LATE_S = 1.0
"""If a host looks for home so much later than the last time, its own process stood still meanwhile."""
WITHDRAW_S = 0.01
"""How often a host looks whether the last question of a dead environment node is answered."""
TOLD = ("begun", "busy_ns", "idle_ns", "skipped", "not_restored")
"""Counters of a node that home adds to its own."""


class Host:
    """The environment nodes, policy nodes and learners of one run on this machine, each in a process of its own.

    Args:
        program: see `host_program`.
        path: the launcher's module search path. What is missing here is appended.
    """

    def __init__(self, program: Program, path: Sequence[str]) -> None:
        sys.path.extend(folder for folder in path if folder not in sys.path)
        self._program = program
        self._wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
        self._segment = Segment.create(self._wiring.nbytes, "penstock")
        self._wiring.attach(self._segment.bytes)
        self._published: dict[str, int] = {}
        """Board -> the number of the publication at home that is here."""
        self._boards = {board.name: self._wiring.board(board.name) for board in carried(program)}
        self._not_yet_free: list[FreeSlot] = []
        """Slots that are free once a publication has come."""
        self._streams = {edge.writers[0]: memory for edge, memory in self._wiring.streams() if edge.writers != (RELAY,)}
        self._viewed: StreamMemory | None = None
        if (stream := viewed(program)) is not None:
            self._viewed = self._wiring.stream(stream.name)
        self._shards = HostedTable(program, self._wiring)
        self._observations = observation_fields(program)
        self._followers = Followers(program, self._wiring, OWNER)
        self._questions = OpenQuestions(program, self._wiring)
        self._processes = Processes()
        self._tasks: dict[str, Task] = {}
        self._pasts = LanePasts(program, self._wiring)
        self._lives: dict[str, int] = {}
        """Group -> its latest life that was started or stopped here. Calls may come in another order than they left."""
        self._untold: list[tuple[int, Exit]] = []
        """Lives that ended, or that the system refused, until home is told."""
        self._served = ""
        """The group whose slots came first in the last answer of `collect`."""
        self._asked = math.inf
        """When home last asked for something."""
        self._looked = math.inf
        """When this host last looked whether it had stood still."""
        self._excused: deque[tuple[int, int]] = deque(maxlen=100)
        """The end and the length, in nanoseconds, of each time in which it stood still."""
        self._last = Batch([], [], {}, ())
        """The last answer of `collect`, until home asks for the next one."""
        self._rung = asyncio.Event()
        self._publication_came = asyncio.Event()
        self._listener: threading.Thread | None = None

    async def facts(self) -> Facts:
        """The facts of this machine."""
        self._listen()
        return facts()

    async def start(self, group: str, task: Task) -> int:
        """Run a node. What an earlier life of it has left here is dropped. Returns the number of the life."""
        if task.life <= self._lives.get(group, -1):
            return task.life
        self._lives[group] = task.life
        self._drop(group)
        self._asked = time.monotonic()
        node, wiring = task.node, self._wiring
        if task.positions:
            self._pasts.begin(group, task)
        self._followers.begin(task)
        now = time.monotonic_ns()
        wiring.counters.set(node.name, "heartbeat_ns", now)
        wiring.counters.set(node.name, "busy_until_ns", now + int(START_LIMIT_S * 1e9))
        for name in (*TOLD, "handed_on"):
            wiring.counters.set(node.name, name, 0)
        part = placement(self._program.with_node(self._here(node)), group)
        self._tasks[group] = task
        parameters = dict(self._here(node).edges).get("parameters", "parameters")
        # A learner that started before would go on with a batch that is over, and look for rollouts that are freed.
        while self._published.get(parameters, 0) < task.publication:
            self._publication_came.clear()
            await self._publication_came.wait()
        # A policy node may still write the answer to the last question of the life before. This life fills the same
        # slot. So wait until that question is withdrawn or answered.
        while not self._questions.withdrawn(node.name):
            await asyncio.sleep(WITHDRAW_S)
        if self._tasks.get(group) is not task:
            return task.life
        spec = WorkerSpec(part, {node.name: task.life}, {node.name: ()})
        try:
            self._processes.start(self._segment, spec, task.threads, task.imports)
        except ResourceError as error:
            self._untold.append((task.life, Exit(group, 1, str(error), Cause.REFUSED)))
        return task.life

    async def stop(self, group: str, life: int) -> None:
        """End the process of a node, unless it is in a later life already. If its start comes later, it is refused."""
        if self._lives.get(group, -1) <= life:
            self._lives[group] = life
            self._drop(group)

    async def stacks(self, groups: Sequence[str]) -> dict[str, str]:
        """Group -> the stacks of all threads of its process."""
        return self._processes.stacks(groups)

    async def show(self, group: str, life: int, rollouts: Sequence[SlotCopy]) -> None:
        """Show new rollouts to a learner, unless it is in a later life already."""
        self._asked = time.monotonic()
        task = self._tasks.get(group)
        if task is not None and task.life == life:
            self._followers.show(task.node.name, rollouts)
            self._wiring.bells.ring(self._wiring.bell_of(group))

    async def feed(self, news: News) -> None:
        """Take new slots of the table, or priorities, for learners that sample it and follow no goals."""
        self._asked = time.monotonic()
        # Nobody waits for priorities.
        if self._shards.take(news) and news.slots:
            self._wiring.bells.ring_all()

    async def observations(self, wanted: Sequence[WantedRollout]) -> list[Array | None]:
        """The observations of rollouts of this host, each as `packed` makes it. ``None``: its life is over."""
        return [self._packed_observations(one) for one in wanted]

    async def fetch(self, host: Any, wanted: Sequence[WantedRollout]) -> list[bool] | None:  # noqa: ANN401 - an actor
        """Fetch the observations of rollouts for the learner of their shard.

        Args:
            host: that of their environment nodes; ``None``: this one.
            wanted: the rollouts.

        Returns:
            For each rollout whether its observations are here now; ``None``: the other host does not answer; empty: the
            object store of its machine has no room for the answer at present.
        """
        self._asked = time.monotonic()
        found = await (self.observations(wanted) if host is None else observations_from(host, wanted))
        if not found:
            return None if found is None else []
        for one, parcel in zip(wanted, found, strict=True):
            if parcel is not None:
                self._shards.fetched.put(one, parcel)
        return [parcel is not None for parcel in found]

    async def publish(self, board: str, publication: Publication, rollouts: dict[int, Array] | None) -> int:
        """Write the rollouts that a publication of home names, then publish it here. Returns the publication's number.

        Home sends a publication twice, if a machine was lost meanwhile. Race:

        1. Ray asks the lost machine for the first object.
        2. The second object comes, and then newer publications.
        3. The first object comes. It is left out, because a newer one is published already.

        Args:
            board: its name.
            publication: of home.
            rollouts: slot -> the rollout in it, unless this machine has them.
        """
        self._asked = time.monotonic()
        if publication.news is None and publication.number <= self._published.get(board, 0):
            return publication.number
        if self._viewed is not None:
            for slot, rollout in (rollouts or {}).items():
                unpack(rollout, self._viewed.slot(slot))
        if publication.news is not None and self._shards.take(publication.news) and not publication.news.whole:
            return publication.number
        memory = self._boards[board]
        arrays = {spec.name: np.empty(spec.shape, spec.dtype) for spec in memory.specs}
        unpack(publication.parcel, arrays)
        memory.publish(arrays, publication.version)
        self._followers.settle(arrays, publication.version)
        self._published[board] = publication.number
        self._publication_came.set()
        waiting, self._not_yet_free = self._not_yet_free, []
        self._free(waiting)
        self._wiring.bells.ring_all()
        return publication.number

    async def collect(self, delivered: Sequence[FreeSlot]) -> Batch:
        """Wait for finished rollouts or gradients, for ended processes, or for half a second.

        Args:
            delivered: the slots of rollouts that home has.
        """
        self._listen()
        self._last = Batch([], [], {}, ())
        await self.release(delivered)
        until = time.monotonic() + REPLY_S
        while True:
            # Cleared before the look: a ring behind the look ends the wait.
            self._rung.clear()
            filled = self._filled_slots()
            exits = self._exits()
            if filled or exits or (left := until - time.monotonic()) <= 0:
                self._last = Batch(filled, exits, self._vitals(), self._processes.log_lines())
                return self._last
            try:
                await asyncio.wait_for(self._rung.wait(), min(LOOK_S, left))
            except TimeoutError:
                continue

    async def collect_again(self) -> Batch:
        """The last answer of `collect` once more: there was no room for it in the object store of this machine."""
        self._asked = time.monotonic()
        return self._last._replace(vitals=self._vitals())

    async def give_sign(self) -> None:
        """Answer home, and note that it lives, while an answer of `collect` is on its way."""
        self._asked = time.monotonic()

    async def release(self, delivered: Sequence[FreeSlot]) -> None:
        """Free slots whose rollouts home has; the argument is that of `collect`."""
        self._asked = time.monotonic()
        self._free(delivered)

    async def find_shard(self, shard: int, folder: str, names: Sequence[ShardName]) -> FoundShard | None:
        """As `HostedTable.find`. The host answers other calls meanwhile."""
        return await asyncio.to_thread(self._shards.find, shard, folder, names)

    async def keep_shard(self, shard: int, path: str, mark: ShardMark, rest: Sequence[News]) -> str:
        """As `HostedTable.keep`."""
        return await self._shards.keep(shard, path, mark, rest)

    async def end(self) -> None:
        """End all processes: each closes its environments, if it does so within two seconds."""
        self._wiring.counters.set(SUPERVISOR, "ended", 1)
        self._wiring.bells.ring_all()
        until = time.monotonic() + END_S
        while self._processes.running() and time.monotonic() < until:
            self._processes.exits()
            await asyncio.sleep(0.01)
        self._processes.close()

    def _free(self, delivered: Sequence[FreeSlot]) -> None:
        """Free these slots; each that needs a publication that is not here yet, as soon as it comes."""
        for one in delivered:
            task = self._tasks.get(one.group)
            if task is None or task.life != one.life:
                continue
            if self._published.get(POLICY, 0) < one.publication:
                self._not_yet_free.append(one)
            else:
                self._streams[task.node.name].release(one.slot, OWNER)
                self._wiring.bells.ring(self._wiring.bell_of(one.group))

    def _here(self, node: NodeSpec) -> NodeSpec:
        """The node with the edges that it has on a host."""
        return NodeSpec(**{**vars(node), "edges": self._program.node(node.name).edges})

    def _drop(self, group: str) -> None:
        """Kill the process of a group, and free all slots that it has filled."""
        task = self._tasks.pop(group, None)
        if task is None:
            return
        if group in self._processes.running():
            self._processes.kill(group)
        self._questions.drop(task)
        stream = self._streams.get(task.node.name)
        if stream is not None:
            # First what travels, then what the dead node was filling, then what it had filled.
            stream.recover(OWNER)
            stream.recover(task.life)
            while (slot := stream.take(OWNER)) is not None:
                stream.release(slot, OWNER)
        self._followers.drop(task.node.name)
        self._shards.recover(task.node.name)
        self._wiring.bells.recover(self._wiring.bell_of(group))

    def _filled_slots(self) -> list[FilledSlot]:
        """The next filled slots, about ``PART_BYTES``.

        The answer of `collect` is a sign of life. If it were larger, it would be on its way for too long. Each answer
        begins with another group: where the link is the limit, none waits for ever.
        """
        found: list[FilledSlot] = []
        left = PART_BYTES
        groups = list(self._tasks)
        begin = groups.index(self._served) + 1 if self._served in groups else 0
        for group in (*groups[begin:], *groups[:begin]):
            task = self._tasks[group]
            stream = self._streams.get(task.node.name)
            while left > 0 and stream is not None and (slot := stream.take(OWNER)) is not None:
                arrays = stream.slot(slot)
                pasts, bases = self._pasts.unknown(group, task.node, arrays) if task.positions else ({}, {})
                parcel = packed(without(arrays, self._observations) if task.apart else arrays)
                known = self._shards.known_priorities(arrays) if task.apart else None
                sequence = stream.sequence(slot)
                found.append(FilledSlot(group, task.life, slot, sequence, parcel, pasts, bases, task.apart, known))
                left -= parcel.nbytes
        if found:
            self._served = found[0].group
        return found

    def _packed_observations(self, wanted: WantedRollout) -> Array | None:
        """The observations in a slot, which stays as it is until home has said that it has the rollout."""
        task = self._tasks.get(wanted.group)
        if task is None or task.life != wanted.name.life:
            return None
        stream = self._streams[task.node.name]
        if stream.sequence(wanted.slot) != wanted.name.sequence:
            return None
        return packed(only(stream.slot(wanted.slot), self._observations))

    def _exits(self) -> list[tuple[int, Exit]]:
        """Lives that have ended, each behind all that it has filled."""
        ended = [(self._tasks.get(one.group), one) for one in self._processes.exits()]
        untold = [*self._untold, *((task.life, one) for task, one in ended if task is not None)]
        self._untold = [(life, one) for life, one in untold if self._has_filled(one.group)]
        return [(life, one) for life, one in untold if not self._has_filled(one.group)]

    def _has_filled(self, group: str) -> bool:
        """Whether slots of the group's node wait for `collect`."""
        task = self._tasks.get(group)
        stream = None if task is None else self._streams.get(task.node.name)
        return stream is not None and stream.ready() > 0

    def _wake(self) -> None:
        """Let `collect` look again. If home is silent, end all processes."""
        self._rung.set()
        self._excuse()
        if time.monotonic() - self._asked < SILENCE_S:
            return
        for group in self._processes.running():
            self._processes.kill(group)
            ended = Exit(group, -signal.SIGKILL, f"the launcher asked for nothing for {SILENCE_S:.0f} s")
            self._untold.append((self._tasks[group].life, ended))

    def _excuse(self) -> None:
        """Count no silence from a time in which this process itself stood still, as on a paused machine.

        It could hear nobody then: home waited for its answer. Nor could the nodes give a sign of life.
        """
        now = time.monotonic()
        late = now - self._looked - LATE_S
        self._looked = now
        if late > 0.0:
            # Race:
            # 1. This process stands still.
            # 2. It goes on, and takes a call of home: `_asked` is set to the present time.
            # 3. This look adds the standstill to `_asked`. The sum must not be later than now.
            self._asked = max(self._asked, min(self._asked + late, now))
            self._excused.append((time.monotonic_ns(), int(late * 1e9)))

    def _vitals(self) -> dict[str, Vitals]:
        self._excuse()
        return {group: self._vitals_of(task) for group, task in self._tasks.items()}

    def _vitals_of(self, task: Task) -> Vitals:
        counters, name, now = self._wiring.counters, task.node.name, time.monotonic_ns()
        alive = counters.get(name, "heartbeat_ns")
        return Vitals(
            task.life,
            # The time since the last sign of life, without standstills. A standstill may have begun before this sign:
            # then only its part after the sign is subtracted.
            now - alive - sum(min(length, until - alive) for until, length in self._excused if until > alive),
            max(0, counters.get(name, "busy_until_ns") - now),
            counters.get(name, "sign"),
            counters.get(name, "handed_on"),
            {counter: counters.get(name, counter) for counter in TOLD},
        )

    def _listen(self) -> None:
        """Start the thread that waits for the relay's bell, at the first call."""
        if self._listener is None:
            loop = asyncio.get_running_loop()
            self._listener = threading.Thread(target=self._wait_for_rings, args=(loop,), daemon=True)
            self._listener.start()

    def _wait_for_rings(self, loop: asyncio.AbstractEventLoop) -> None:
        bells, bell = self._wiring.bells, self._wiring.bell_of(RELAY)
        while not self._wiring.ended():
            seen = bells.word(bell)
            # A ring before the word was read is answered here as well, because the event is set each time.
            loop.call_soon_threadsafe(self._wake)
            bells.wait(bell, seen, LOOK_S)
