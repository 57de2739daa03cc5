"""Deliveries: the slots that nodes on hosts have filled, on their way into the run's own segment, in order.

What finds no free slot at home waits here, and so does a rollout whose observations are still to be fetched. Calls no
host: the relay does.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from penstock.cluster.fetched import RolloutName
from penstock.cluster.fetches import Fetches
from penstock.cluster.machines import Machine
from penstock.cluster.messages import FilledSlot, FreeSlot
from penstock.cluster.publications import Publications
from penstock.cluster.stand_in import FollowerStandIn, StandIn

__all__ = ["Deliveries"]


class Deliveries:
    """What came from hosts and is not delivered yet, and the slots of hosts that are free again.

    Args:
        fetches: says where the observations are that did not come with their rollouts.
        publications: hears which rollouts hosts have fetched, and which priorities learners have given.
    """

    def __init__(self, fetches: Fetches, publications: Publications) -> None:
        self._fetches = fetches
        self._publications = publications
        self.waiting: deque[tuple[Machine, FilledSlot]] = deque()
        """What waits, with the host that it came from."""
        self._freed: dict[Machine, list[FreeSlot]] = {}
        """Host -> the slots of what was delivered, until the host is told."""

    def take(self, machine: Machine, filled: Iterable[FilledSlot]) -> None:
        """Take what came from a host."""
        self.waiting.extend((machine, one) for one in filled)

    def deliver(self, nodes: Mapping[str, StandIn]) -> None:
        """Deliver what came, in order. What finds no free slot waits, and holds up no other node.

        Args:
            nodes: group -> the stand-in of the node that runs on a host now.
        """
        kept: deque[tuple[Machine, FilledSlot]] = deque()
        held: set[str] = set()
        while self.waiting:
            machine, filled = self.waiting.popleft()
            node = nodes.get(filled.group)
            if node is None or node.life != filled.life:
                # Of an earlier life: the next one collects these rows again, so nothing counts them.
                continue
            complete = self._fetches.complete(filled)
            if filled.group in held or complete is None or not node.deliver(complete):
                held.add(filled.group)
                kept.append((machine, filled))
                continue
            if (host := self._fetches.host_of(filled)) is not None:
                self._publications.fetched(host, node.name, RolloutName(filled.life, filled.sequence))
            if node.freed_on_delivery:
                free = FreeSlot(filled.group, filled.life, filled.slot, node.next_needs())
                self._freed.setdefault(machine, []).append(free)
            if isinstance(node, FollowerStandIn):
                self._publications.ranked(node.ranked())
        self.waiting = kept

    def freed_on(self, machine: Machine) -> list[FreeSlot]:
        """The slots of what was delivered of a host. It counts as told."""
        return self._freed.pop(machine, [])

    def freed(self) -> Iterator[tuple[Machine, list[FreeSlot]]]:
        """The same of all hosts."""
        while self._freed:
            yield self._freed.popitem()
