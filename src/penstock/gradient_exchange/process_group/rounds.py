"""Rounds of learners on several machines: all gather what each brings, and each adds it up as in shared memory.

So the mean has the bits of `penstock.memory.rounds.Rounds`, for any number of learners. A ring that adds on the way
would send less from four learners on, and add in another order for each part of a vector. Members that name only some
others send to these only, and no mean is taken.

Members always meet in full number. If one of them is lost, `over` raises, and all leave and meet anew.
"""

import mmap
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import numpy as np
import torch

from penstock.gradient_exchange.meeting import KEEPER, NAP_S, signing
from penstock.gradient_exchange.process_group.rendezvous import KeeperSide, OtherSide, Rendezvous
from penstock.gradient_exchange.process_group.transport import Group, UnderWay
from penstock.memory.rounds import Joined, Rounds
from penstock.nodes.contract import Ports
from penstock.program.graph import ProcessGroup
from penstock.types import Array, ArraySpec
from penstock.updates.team import DissolvedError

__all__ = ["ProcessGroupRounds", "build"]

WEIGHT_BYTES = 8


def build(ports: Ports, edge: ProcessGroup) -> "ProcessGroupRounds":
    """A node's end of a process group."""
    me, reader = edge.members.index(ports.name), ports.board_reader(edge.board)
    way: Rendezvous = (
        KeeperSide(edge, ports.board_writer(edge.board), reader) if me == KEEPER else OtherSide(edge, reader, me)
    )
    return ProcessGroupRounds(way, len(edge.members), edge.state, me=me, alive=signing(ports))


class ProcessGroupRounds:
    """One member's end; implements `penstock.nodes.ports.RoundsPort`.

    Args:
        way: to the other members.
        members: their number.
        state: arrays of the state with which all begin.
        me: index of this member.
        alive: called while this member waits. True once the run is to end: then it waits no longer.
    """

    def __init__(
        self, way: Rendezvous, members: int, state: Sequence[ArraySpec], *, me: int, alive: Callable[[], bool]
    ) -> None:
        self._way = way
        self._count = members
        self._specs = tuple(state)
        self._me = me
        self._alive = alive
        self._told = torch.zeros(sum(spec.nbytes for spec in state), dtype=torch.uint8)
        self._group: Group | None = None
        self._ends: list[Rounds] = []
        """The ends of all members, in memory of this process. `mean` brings all payloads there, and adds them up."""
        self._work: UnderWay | None = None
        """A round, or the state on its way."""
        self._brought: dict[int, torch.Tensor] = {}
        """Member -> weight and bytes, uint8 ``[n]``, in the last round. Only of members that exchange with this one."""
        self._expected = False
        """Whether the others wait for the keeper's state."""
        self._lost = False
        self._stuck: list[tuple[Group, UnderWay]] = []
        """Groups that could not be ended, because a round waited for a lost member. With that round."""

    def join(self, *, anew: bool) -> Joined:
        """Meet the others. As `RoundsPort.join`: only the keeper, which joins ``anew``, goes on from its own state."""
        if self._lost:
            self.remove()
        # Drop groups whose round has ended by now: that closes their connections, for which others may wait.
        self._stuck = [(group, work) for group, work in self._stuck if not work.is_completed()]
        if self._group is None:
            found = self._way.meet()
            if found is None:
                return Joined.WAITING
            self._begin(found, keeper=anew)
        if anew:
            return Joined.FOUNDED
        if self._work is None or self._done(NAP_S):
            self._work = None
            return Joined.ADMITTED
        self._look()
        return Joined.WAITING

    def _begin(self, group: Group, *, keeper: bool) -> None:
        self._group, self._expected = group, keeper
        memory = np.frombuffer(mmap.mmap(-1, Rounds.required(self._count, self._specs)), np.uint8)
        self._ends = [Rounds(memory, self._count, self._specs, member) for member in range(self._count)]
        for end in self._ends:
            end.join(anew=False)
        if not keeper:
            self._tell(group)

    def read_state(self, into: Mapping[str, Array]) -> None:
        """Copy the keeper's state into ``into``."""
        at, told = 0, self._told.numpy()
        for spec in self._specs:
            part = told[at : at + spec.nbytes].copy().view(spec.dtype)
            np.copyto(into[spec.name], part.reshape(spec.shape))
            at += spec.nbytes

    def newcomer_waits(self) -> bool:
        """True if this is the keeper, and the others wait for its state."""
        return self._expected

    def admit(self, state: Mapping[str, Array]) -> None:
        """Send the state to all others. A loss on the way shows in the next round."""
        group, self._expected = self._group, False
        if group is None:
            return
        parts = [np.ascontiguousarray(state[spec.name]).reshape(-1).view(np.uint8) for spec in self._specs]
        self._told = torch.from_numpy(np.concatenate(parts))
        self._tell(group)
        while not self._lost:
            if self._done(NAP_S):
                self._work = None
                return
            self._look()

    def send(self, arrays: Sequence[Array], weight: float, to: Sequence[int] | None = None) -> None:
        """Bring arrays of any size to a round. As `Transport.send`."""
        group = self._group
        if self._lost or group is None:
            return
        parts = [np.array([weight]).view(np.uint8), *(values.reshape(-1).view(np.uint8) for values in arrays)]
        mine = torch.from_numpy(np.concatenate(parts))
        if to is None or len(to) == self._count:
            everything = [torch.empty_like(mine) for _ in range(self._count)]
            self._brought = dict(enumerate(everything))
            self._start(lambda: group.gather(mine, everything))
            return
        others = {member: torch.empty_like(mine) for member in to if member != self._me}
        self._brought = {**others, self._me: mine}
        self._start(lambda: group.swap(mine, others))

    def over(self) -> bool:
        """True once what others bring is here. As `Transport.over`."""
        if self._lost or self._group is None or self._work is None:
            raise DissolvedError("a learner that takes part in each gradient step is lost")
        if not (self._work.is_completed() and self._done(NAP_S)):
            return False
        self._work = None
        return True

    def receive(self, source: int, nbytes: int) -> tuple[float, Array]:
        """What a member brought to the last round. As `Transport.receive`."""
        weight, payload = self._payload(source)
        return weight, payload[:nbytes]

    def took_part(self) -> list[int]:
        """All members."""
        return list(range(self._count))

    def mean(self, into: Sequence[Array]) -> None:
        """Write the weighted mean of the last round's arrays into ``into``. Once a round."""
        for member, end in enumerate(self._ends):
            weight, payload = self._payload(member)
            end.send([payload], weight)
        self._ends[self._me].mean(into)

    def _payload(self, member: int) -> tuple[float, Array]:
        """Weight and bytes, uint8 ``[n]``, of a member in the last round."""
        row: Array = self._brought[member].numpy()
        return float(row[:WEIGHT_BYTES].view(np.float64)[0]), row[WEIGHT_BYTES:]

    def word(self) -> int:
        """Always 0: `sleep` misses nothing that has happened since the last look."""
        return 0

    def sleep(self, seen: int, timeout_s: float) -> None:
        """Sleep until the round is over, or a member is lost."""
        del seen
        if self._work is None:
            time.sleep(timeout_s)
        if not self._done(timeout_s):
            self._look()

    def round_has_begun(self) -> bool:
        """True if this member has brought something to a round that is not over."""
        return self._work is not None

    def first_round_is_over(self) -> bool:
        """True once all have met."""
        return self._group is not None

    def members(self) -> list[int]:
        """All members, or none once one of them is lost."""
        self._look()
        return [] if self._lost or self._group is None else list(range(self._count))

    def meeting(self) -> int:
        """The number of the meeting that stands. As `RoundsPort.meeting`."""
        return self._way.meeting()

    def remove(self) -> None:
        """Leave. The others leave, too, once they notice."""
        work = self._work
        if self._group is not None and work is not None and not work.is_completed() and not self._group.end():
            self._stuck.append((self._group, work))
        self._group = self._work = None
        self._lost = self._expected = False
        self._way.leave()

    def _tell(self, group: Group) -> None:
        """Start to bring the keeper's state to all others."""
        self._start(lambda: group.tell(self._told))

    def _start(self, begin: Callable[[], UnderWay]) -> None:
        try:
            self._work = begin()
        except RuntimeError:
            self._lost = True

    def _done(self, timeout_s: float) -> bool:
        """Wait for the work that was started. True once it has succeeded."""
        if self._work is None:
            return False
        limit = timedelta(seconds=timeout_s)
        if _succeeds(self._work, limit):
            return True
        # Race: 1. The time is up. 2. The work succeeds. 3. It is completed.
        # So only a second wait tells whether it failed.
        if not self._work.is_completed():
            return False
        self._lost = self._lost or not _succeeds(self._work, limit)
        return not self._lost

    def _look(self) -> None:
        """Note whether a member is lost. At the end of a run one counts as lost, so that nobody waits."""
        self._lost = self._lost or self._alive() or self._way.broken()


def _succeeds(work: UnderWay, limit: timedelta) -> bool:
    """Wait for the work. False if it failed, or if the time is up."""
    try:
        work.wait(limit)
    except RuntimeError:
        return False
    return True
