"""StandIn: one life of a node that runs on a host, as home sees it. So no other node knows on which machine it runs.

It keeps the node's counters. That of an environment node also owns the node's ends of the edges at home: it delivers
rollouts in the node's name and keeps its action log.
"""

import time
from dataclasses import replace

from penstock.cluster.messages import Rollout, Task, Vitals
from penstock.cluster.parcels import unpack
from penstock.memory.action_log import ActionLog, Position, RolloutLog
from penstock.nodes.contract import LaneStart
from penstock.nodes.env import EnvSettings
from penstock.nodes.env.takeover import lane_starts
from penstock.program.graph import ActionLog as ActionLogEdge
from penstock.program.graph import NodeSpec
from penstock.wiring.edges import Wiring
from penstock.wiring.ports import NodePorts

__all__ = ["EnvStandIn", "StandIn", "stand_in"]


def stand_in(wiring: Wiring, node: NodeSpec, life: int, former: tuple[int, ...]) -> "StandIn":
    """The stand-in of a movable node. Its arguments are those of `EnvStandIn`."""
    return EnvStandIn(wiring, node, life, former) if node.kind == "env" else StandIn(wiring, node, life)


class StandIn:
    """One life of a node on another machine. A learner needs no more.

    Args:
        wiring: of home.
        node: the node.
        life: the number of this life.
    """

    def __init__(self, wiring: Wiring, node: NodeSpec, life: int) -> None:
        self.name = node.name
        self.life = life
        self._node = node
        self._counters = wiring.counters

    def task(self, threads: int, imports: tuple[str, ...]) -> Task:
        """What a host has to do."""
        return Task(self._node, self.life, (), threads, imports)

    def see(self, vitals: Vitals) -> None:
        """Write the node's signs of life and its counters, as its host told them."""
        name, counters, now = self.name, self._counters, time.monotonic_ns()
        counters.set(name, "heartbeat_ns", now - vitals.silent_ns)
        counters.set(name, "busy_until_ns", now + vitals.busy_ns if vitals.busy_ns else 0)
        counters.set(name, "sign", vitals.sign)
        for counter, value in vitals.counters.items():
            counters.set(name, counter, value)


class EnvStandIn(StandIn):
    """One life of an environment node on another machine.

    Args:
        wiring: of home.
        node: the environment node.
        life: the number of this life.
        former: the numbers of its earlier lives, wherever they ran.
    """

    def __init__(self, wiring: Wiring, node: NodeSpec, life: int, former: tuple[int, ...]) -> None:
        super().__init__(wiring, node, life)
        settings: EnvSettings = node.settings
        self._settings = settings
        self._ports = NodePorts(wiring, node.name, node.group, life, former, edges=node.edges)
        self._stream = self._ports.stream_writer("rollouts")
        edge = wiring.edge(f"actions.{node.name}")
        if not isinstance(edge, ActionLogEdge):
            raise TypeError(f"edge {edge.name} is no action log")
        # Without observations: a host hashes them, and its positions hold the hashes.
        self._log = ActionLog(wiring.bytes_of(edge.name), edge.lanes, edge.action, (), edge.capacity)
        self._bound: dict[int, RolloutLog] = {}

    def task(self, threads: int, imports: tuple[str, ...]) -> Task:
        """What a host has to do: the node's settings with the starts of this life, as a process at home finds them."""
        settings, ports = self._settings, self._ports
        if not ports.former:
            ports.note("collected", sum(start.collected - start.spoilt for start in settings.starts))
        starts = lane_starts(settings, ports, self._stream, self._log, restorable=True)
        positions = tuple(self._log.position(lane) for lane in range(settings.lanes))
        for lane, start in enumerate(starts):
            self._restore(lane, start)
        node = replace(self._node, settings=replace(settings, starts=starts))
        return Task(node, self.life, positions, threads, imports)

    def _restore(self, lane: int, start: LaneStart) -> None:
        """Log the actions that the host will play again: a checkpoint needs them from the episode's reset on."""
        if start.position is None or start.actions is None:
            return
        for action in start.actions:
            self._log.append_lane(lane, action, {})
        self._log.rewind(lane, start.position)

    def deliver(self, rollout: Rollout) -> bool:
        """Hand a rollout to the learner. False while the stream has no free slot."""
        index = self._stream.claim(rollout.sequence)
        if index is None:
            return False
        slot, steps = self._stream.slot(index), self._settings.num_steps
        unpack(rollout.parcel, slot)
        ends = [Position(*map(int, row)) for row in slot["lane_position"]]
        for lane, end in enumerate(ends):
            # Each vector step adds one action to each lane. So the rollout's actions are the last ones of the lane.
            self._log.rewind(lane, Position(end.episode, 0, end.first_step + end.steps - steps, 0))
        if index not in self._bound:
            self._bound[index] = self._log.bind(slot["action"], {})
        for t in range(steps):
            self._bound[index].append(t)
        for lane, end in enumerate(ends):
            if lane in rollout.episodes:
                self._log.rewind(lane, end._replace(steps=0))
                for action in rollout.episodes[lane]:
                    self._log.append_lane(lane, action, {})
            self._log.rewind(lane, end)
        self._ports.note("collected", int((slot["lane_collected"] - slot["lane_spoilt"]).sum()))
        self._stream.push(index)
        return True
