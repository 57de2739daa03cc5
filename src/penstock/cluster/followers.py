"""The learners of a host that hand gradients on: the gradients and rollouts that the host keeps for them.

Knows no cluster. A host's streams are those of home, only later: a slot is freed once the parameters have come that
settle it.

1. The parameters are published on the host.
2. The rollouts of a batch are freed, if its last gradient is settled.
3. The slots with settled gradients are freed.

So a learner finds here what it would find at home, also in its next life.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from penstock.cluster.crossing import watched
from penstock.cluster.messages import SlotCopy, Task
from penstock.cluster.movable import handing_on
from penstock.cluster.parcels import unpack
from penstock.errors import PenstockError
from penstock.memory.stream import Stream
from penstock.program.graph import Program
from penstock.types import Array
from penstock.wiring.edges import Wiring

__all__ = ["Followers"]

NEVER = -1
"""A version before the first one."""


class Followers:
    """The learners of one host.

    Args:
        program: of the host.
        wiring: of the host.
        owner: the relay's number as the reader of streams.
    """

    def __init__(self, program: Program, wiring: Wiring, owner: int) -> None:
        names = handing_on(program)
        self._gradients = {edge.writers[0]: stream for edge, stream in wiring.streams() if edge.writers[0] in names}
        edge = watched(program)
        self._rollouts = None if edge is None else Stream(wiring.bytes_of(edge.name), edge.arrays, edge.slots)
        self._owner = owner
        self._shown: dict[str, set[int]] = {}
        """Learner -> the sequences of the rollouts that it was shown and that are not freed."""
        self._settled: Array = np.zeros(0, np.int64)
        """For each learner, its last step that is settled."""

    def begin(self, task: Task) -> None:
        """Put what an earlier life had to where this life looks for it."""
        name = task.node.name
        if name not in self._gradients:
            return
        for copy in task.handed_on:
            self._put(self._gradients[name], copy)
            # It is at home already: nobody takes it from here.
            self._gradients[name].take(self._owner)
        self._shown[name] = set()
        self.show(name, task.rollouts)
        self._free_settled(NEVER)

    def show(self, name: str, rollouts: Iterable[SlotCopy]) -> None:
        """Show new rollouts to a learner."""
        for copy in rollouts:
            if self._rollouts is None:
                raise PenstockError(f"{name} looks for no rollouts")
            self._put(self._rollouts, copy)
            self._shown[name].add(copy.sequence)

    def settle(self, published: Mapping[str, Array], version: int) -> None:
        """Free what is settled once these parameters are published."""
        if "settled" in published:
            self._settled = published["settled"]
            # If learners share each batch, each version asks for a gradient. A gradient for an earlier version is not
            # used any more, so its slot is freed.
            self._free_settled(version if "begun" in published else NEVER)

    def _free_settled(self, answers_to: int) -> None:
        """Free the slots with settled gradients.

        Args:
            answers_to: gradients that were computed on an earlier version than this one are settled in any case.
        """
        for name, stream in self._gradients.items():
            for sequence, index in stream.written().items():
                slot = stream.slot(index)
                learner, step = int(slot["learner"]), int(slot["step"])
                settled = learner < len(self._settled) and step <= int(self._settled[learner])
                if settled or int(slot["version"]) < answers_to:
                    if slot.get("last"):
                        self._free(name, slot["rollouts"].tolist())
                    stream.release_consumed(self._owner, [sequence])

    def drop(self, name: str) -> None:
        """Free the rollouts that a learner was shown: it does not run here any more."""
        self._free(name, list(self._shown.pop(name, ())))

    def _free(self, name: str, sequences: list[int]) -> None:
        if self._rollouts is None:
            return
        # Sequences of missing rollouts are negative.
        named = [sequence for sequence in sequences if sequence >= 0]
        self._rollouts.release_consumed(self._owner, named)
        self._shown.get(name, set()).difference_update(named)

    def _put(self, stream: Stream, copy: SlotCopy) -> None:
        """Fill a slot of a stream as it is at home.

        Raises:
            PenstockError: no slot is free.
        """
        index = stream.claim(self._owner, copy.sequence)
        if index is None:
            raise PenstockError("home sends more rollouts or gradients than this host has slots for")
        unpack(copy.parcel, stream.slot(index))
        stream.push(index, self._owner)
