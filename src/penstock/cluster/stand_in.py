"""StandIn: one life of a node that runs on a host, as home sees it. So no other node knows on which machine it runs.

Each stand-in keeps the node's counters. Two kinds also own the node's ends of edges at home:

- `EnvStandIn` delivers rollouts in the name of an environment node, and keeps its action log.
- `FollowerStandIn` delivers the gradients that a learner hands on.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from penstock.cluster.crossing import POLICY, in_lock_step, watched
from penstock.cluster.cut import RELAY, one_slot_each
from penstock.cluster.messages import FilledSlot, SlotCopy, Task, Vitals
from penstock.cluster.movable import handing_on
from penstock.cluster.observation_fields import observation_fields, only, without
from penstock.cluster.parcels import packed, unpack
from penstock.cluster.rings import RowRanks
from penstock.cluster.seats import names_on_hosts
from penstock.errors import PenstockError
from penstock.memory.action_log import ActionLog, Past, Position, RolloutLog
from penstock.nodes.contract import LaneStart
from penstock.nodes.env import EnvSettings
from penstock.nodes.env.takeover import lane_starts, note_earlier_rows
from penstock.nodes.learner.gradient_slot import RANKED
from penstock.nodes.ports import StreamReader, StreamWriter
from penstock.program.graph import ActionLog as ActionLogEdge
from penstock.program.graph import NodeSpec, Program, Stream
from penstock.wiring.edges import Wiring
from penstock.wiring.ends import TableEnd
from penstock.wiring.ports import NodePorts

__all__ = ["AnswererStandIn", "EnvStandIn", "FollowerStandIn", "StandIn", "stand_in"]


def stand_in(program: Program, wiring: Wiring, node: NodeSpec, life: int, former: tuple[int, ...]) -> "StandIn":
    """The stand-in of a movable node of a program of home. The other arguments are those of `EnvStandIn`."""
    if node.kind == "env":
        edge = program.edge(dict(node.edges).get("rollouts", "rollouts"))
        soon = one_slot_each(edge) and not in_lock_step(program)
        return EnvStandIn(wiring, node, life, former, observation_fields(program), learned_soon=soon)
    if node.name in handing_on(program):
        return FollowerStandIn(wiring, node, life, former, watched(program))
    there = names_on_hosts(program).get(node.name)
    return StandIn(wiring, node, life) if there is None else AnswererStandIn(wiring, node, life, there)


class StandIn:
    """One life of a node on another machine. A learner in a process group needs no more.

    Args:
        wiring: of home.
        node: the node.
        life: the number of this life.

    Attributes:
        there: the name of its group on the host.
    """

    def __init__(self, wiring: Wiring, node: NodeSpec, life: int) -> None:
        self.name = node.name
        self.there = node.group
        self.life = life
        self._node = node
        self._counters = wiring.counters
        self._handed_on = wiring.counters.get(node.name, "handed_on")
        self._told: dict[str, int] = {}
        """The counters of this life, as its host told them last."""

    counts_at_home = False
    """True: home counts what the node hands on, when it is delivered. False: its host counts it."""
    freed_on_delivery = True
    """True: a slot on the host is free once home has its content. False: it is taken until that is settled."""

    def task(self, threads: int, imports: tuple[str, ...]) -> Task:
        """What a host has to do."""
        return Task(self._node, self.life, (), threads, imports)

    def deliver(self, filled: FilledSlot) -> bool:
        """Hand on what the node has filled. False while the stream at home has no free slot."""
        raise PenstockError(f"{self.name} fills no slots, but {len(filled.parcel)} bytes of it have come")

    def next_needs(self) -> int:
        """The publication of the policy that the node needs before it fills the delivered slot anew; 0: none."""
        return 0

    def see(self, vitals: Vitals) -> None:
        """Write the node's signs of life, and add to its counters what its host has counted since the last call."""
        name, counters, now = self.name, self._counters, time.monotonic_ns()
        counters.set(name, "heartbeat_ns", now - vitals.silent_ns)
        counters.set(name, "busy_until_ns", now + vitals.busy_ns if vitals.busy_ns else 0)
        counters.set(name, "sign", vitals.sign)
        for counter, value in vitals.counters.items():
            # A host counts each life from 0, and home all lives together, with what it has counted itself.
            counters.add(name, counter, value - self._told.get(counter, 0))
        self._told = vitals.counters
        if not self.counts_at_home:
            counters.set(name, "handed_on", self._handed_on + vitals.handed_on)

    def count_as_alive(self) -> None:
        """Count the node as alive while its machine tells nothing: a silent machine has a time limit of its own."""
        self._counters.set(self.name, "heartbeat_ns", time.monotonic_ns())


class AnswererStandIn(StandIn):
    """One life of a policy node on another machine.

    Args:
        wiring: of home.
        node: the policy node.
        life: the number of this life.
        there: its name on the host, and that of its group.
    """

    def __init__(self, wiring: Wiring, node: NodeSpec, life: int, there: str) -> None:
        super().__init__(wiring, node, life)
        self.there = there

    def task(self, threads: int, imports: tuple[str, ...]) -> Task:
        """What a host has to do: run the policy node that has this name there."""
        return Task(replace(self._node, name=self.there, group=self.there), self.life, (), threads, imports)


class EnvStandIn(StandIn):
    """One life of an environment node on another machine.

    Args:
        wiring: of home.
        node: the environment node.
        life: the number of this life.
        former: the numbers of its earlier lives, wherever they ran.
        observations: the fields of a slot that are observations.
        learned_soon: few versions may pass until a rollout is learned from. So none begins with a policy that is older
            than the one at home when the rollout before it was delivered.
    """

    counts_at_home = True

    def __init__(
        self,
        wiring: Wiring,
        node: NodeSpec,
        life: int,
        former: tuple[int, ...],
        observations: Sequence[str],
        *,
        learned_soon: bool,
    ) -> None:
        super().__init__(wiring, node, life)
        self._policy = wiring.board(POLICY) if learned_soon else None
        self._observations = observations
        settings: EnvSettings = node.settings
        self._settings = settings
        self._ports = NodePorts(wiring, node.name, node.group, life, former, edges=node.edges)
        self._stream = self._ports.stream_writer("rollouts")
        edge = wiring.edge(f"actions.{node.name}")
        if not isinstance(edge, ActionLogEdge):
            raise TypeError(f"edge {edge.name} is no action log")
        # Without observations: a host hashes them, and its positions hold the hashes.
        self._log = ActionLog(
            wiring.bytes_of(edge.name), edge.lanes, edge.action, (), edge.capacity, snapshot_bytes=edge.snapshot_bytes
        )
        self._bound: dict[int, RolloutLog] = {}
        """Index of a slot -> what logs the actions in it."""

    def task(self, threads: int, imports: tuple[str, ...]) -> Task:
        """What a host has to do: the node's settings with the starts of this life, as a process at home finds them."""
        settings, ports = self._settings, self._ports
        note_earlier_rows(settings, ports)
        starts = lane_starts(settings, ports, self._stream, self._log, restorable=True)
        positions = tuple(self._log.position(lane) for lane in range(settings.lanes))
        for lane, start in enumerate(starts):
            self._restore(lane, start)
        node = replace(self._node, settings=replace(settings, starts=starts))
        return Task(node, self.life, positions, threads, imports)

    def _restore(self, lane: int, start: LaneStart) -> None:
        """Log the actions that the host will play again: a checkpoint needs them from their base on."""
        if start.position is None or start.actions is None:
            return
        if start.base is not None:
            self._log.begin_at(lane, start.base)
        else:
            self._log.forget_snapshots(lane, start.position)
        for action in start.actions:
            self._log.append_lane(lane, action, {})
        self._log.rewind(lane, start.position)

    def deliver(self, filled: FilledSlot) -> bool:
        """Hand a rollout to the learner. False while the stream has no free slot.

        Of observations that went straight to the learner's machine, the memory here is not touched.
        """
        index = self._stream.claim(filled.sequence)
        if index is None:
            return False
        slot, steps = self._stream.slot(index), self._settings.num_steps
        unpack(filled.parcel, without(slot, self._observations) if filled.apart else slot)
        if filled.observations is not None:
            unpack(filled.observations, only(slot, self._observations))
        ends = [Position(*map(int, row)) for row in slot["lane_position"]]
        for lane, end in enumerate(ends):
            # Each vector step adds one action to each lane. So the rollout's actions are the last ones of the lane.
            self._log.rewind(lane, Position(end.episode, 0, end.first_step + end.steps - steps, 0))
        if index not in self._bound:
            self._bound[index] = self._log.bind(slot["action"], {})
        for t in range(steps):
            self._bound[index].append(t)
        for lane, end in enumerate(ends):
            if lane in filled.pasts:
                self._log_past(lane, filled.pasts[lane], end)
            elif lane in filled.bases:
                self._log.add_snapshot(lane, filled.bases[lane])
            self._log.rewind(lane, end)
        self._ports.note("collected", int((slot["lane_collected"] - slot["lane_spoilt"]).sum()))
        if isinstance(self._stream, TableEnd):
            self._stream.push(index, filled.known)
        else:
            self._stream.push(index)
        return True

    def next_needs(self) -> int:
        """The latest publication, if rollouts are learned from soon.

        Race: a rollout that had waited here for a free slot is delivered once the learner has published. The host may
        hear of its own free slot before it has that publication, which takes longer.
        """
        return 0 if self._policy is None else self._policy.publication()

    def _log_past(self, lane: int, past: Past, end: Position) -> None:
        """Log all actions that restore a lane to ``end``. Home lacks those of a rollout that was dropped."""
        self._log.rewind(lane, end._replace(steps=0))
        if past.base is not None:
            self._log.begin_at(lane, past.base)
        for action in past.actions:
            self._log.append_lane(lane, action, {})


class FollowerStandIn(StandIn):
    """One life of a learner on another machine that hands its gradients on.

    Args:
        wiring: of home.
        node: the learner.
        life: the number of this life.
        former: the numbers of its earlier lives, wherever they ran.
        watched: the stream in which it looks for new rollouts by itself; ``None`` if it does not.

    Attributes:
        started: whether its host has started this life.
    """

    counts_at_home = True
    freed_on_delivery = False

    def __init__(
        self, wiring: Wiring, node: NodeSpec, life: int, former: tuple[int, ...], watched: Stream | None
    ) -> None:
        super().__init__(wiring, node, life)
        self.started = False
        ports = NodePorts(wiring, node.name, node.group, life, former, edges=node.edges)
        self._gradients = ports.stream_writer("gradients")
        self._parameters = wiring.board(dict(node.edges).get("parameters", "parameters"))
        self._learners = _own_writers(wiring, "gradients")
        self._me = self._learners.index(node.name)
        self._rollouts: StreamReader | None = None
        if watched is not None:
            self._rollouts = ports.stream_reader("rollouts")
            self._envs = len(_own_writers(wiring, "rollouts"))
        self._shown: set[int] = set()
        """The sequences of rollouts that this life has been shown, or is not to be shown."""
        self._priorities = ports.priorities("rollouts")
        self._ranked: list[RowRanks] = []

    def task(self, threads: int, imports: tuple[str, ...]) -> Task:
        """What a host has to do: also what earlier lives have handed on, and from which rollouts to go on.

        Race: gradients are settled meanwhile, and rollouts freed.

        1. Read which gradients are settled. Those may still lie here, if the node that owns the parameters has died
           before it freed them; hosts have no slots for them.
        2. Copy the gradients. The last one of a batch names its rollouts.
        3. Copy all other rollouts. These stay until this life has learned from them.
        4. Look at the latest publication of the parameters. It comes before what it settles is freed, so it settles
           all that was not there to be copied.
        """
        gradients, count = self._gradients, len(self._learners)
        settled = self._settled()
        written = gradients.written()
        under_way = {sequence for sequence in written if int(gradients.slot(written[sequence])["step"]) > settled}
        copies = _copies(gradients, lambda sequence: sequence % count == self._me)
        written = gradients.written()
        for slot in (gradients.slot(written[copy.sequence]) for copy in copies if copy.sequence in written):
            if slot.get("last"):
                self._shown |= set(slot["rollouts"].tolist())
        handed_on = tuple(copy for copy in copies if copy.sequence in under_way)
        rollouts = self.unseen()
        return Task(self._node, self.life, (), threads, imports, handed_on, rollouts, self._parameters.publication())

    def _settled(self) -> int:
        """The number of this learner's last step that is published as settled; -1 before the first publication."""
        steps = np.full(len(self._learners), -1, np.int64)
        self._parameters.read({"settled": steps})
        return int(steps[self._me])

    def unseen(self) -> tuple[SlotCopy, ...]:
        """The rollouts that have come since the last call. They count as shown from now on."""
        if self._rollouts is None:
            return ()
        share = self._envs // len(self._learners)
        self._shown &= self._rollouts.written().keys()
        found = _copies(
            self._rollouts,
            lambda sequence: sequence % self._envs // share == self._me and sequence not in self._shown,
        )
        self._shown |= {copy.sequence for copy in found}
        return found

    def deliver(self, filled: FilledSlot) -> bool:
        """Hand gradients to the node that owns the parameters. False while the stream has no free slot.

        Before that, give the rows of their minibatch at home the priorities that the learner has given to its copies.
        """
        index = self._gradients.claim(filled.sequence)
        if index is None:
            return False
        slot = self._gradients.slot(index)
        unpack(filled.parcel, slot)
        if self._priorities is not None:
            # Copies: the slot is filled anew before hosts have heard of them.
            ranked = RowRanks(*(slot[name].copy() for name in RANKED))
            self._priorities.update(*ranked)
            self._ranked.append(ranked)
        self._gradients.push(index)
        return True

    def ranked(self) -> list[RowRanks]:
        """The priorities that came with what was delivered since the last call. Home has them."""
        ranked, self._ranked = self._ranked, []
        return ranked


def _own_writers(wiring: Wiring, name: str) -> tuple[str, ...]:
    """The writers of a stream that the topology named."""
    edge = wiring.edge(name)
    if not isinstance(edge, Stream):
        raise TypeError(f"edge {name} is no stream")
    return tuple(writer for writer in edge.writers if writer != RELAY)


def _copies(stream: StreamReader | StreamWriter, wanted: Callable[[int], bool]) -> tuple[SlotCopy, ...]:
    """The content of written slots, in the order of their sequences. A slot that is freed meanwhile is left out.

    Race:

    1. This call looks at a slot that is free, and goes on to the next slots.
    2. A node fills that slot, and then one of the slots that this call has still to look at.
    3. This call finds the later rollout, and not the earlier one.

    So this call leaves out each slot with a higher sequence than one that has come meanwhile. The next call copies it.
    """
    written = sorted((sequence, index) for sequence, index in stream.written().items() if wanted(sequence))
    found = [SlotCopy(sequence, packed(stream.slot(index))) for sequence, index in written]
    kept = stream.written()
    came = kept.keys() - {copy.sequence for copy in found}
    end = min(filter(wanted, came), default=math.inf)
    return tuple(copy for copy in found if copy.sequence in kept and copy.sequence < end)
