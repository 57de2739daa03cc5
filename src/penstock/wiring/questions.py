"""The questions of an ask edge that nodes answer. Each asker has its arrays, and a slot for each answerer.

    writing (the asker's) --push--> ready --take--> reading (the answerer's) --release--> free --claim--> writing

An asker holds all its slots while it asks nothing, and pushes the slot of the answerer that it asks. So at most one of
its questions is open, and nobody else uses its arrays meanwhile. The arrays say where the rows lie. The only
observations in them are stacks of frames, because rows hold single frames. A slot has the transitions of a stream's
slot. Each is one compare-and-swap on a word that names the owner, and their memory order carries the data:

- ``push`` (release) before ``take`` (acquire): the answerer sees the question and its observations;
- ``release`` (release) before ``claim`` (acquire): the asker sees the whole answer, in the rollout and in its arrays.

Rings no bell.
"""

from dataclasses import replace

from penstock.memory.layout import Layout
from penstock.memory.stream import Stream as StreamMemory
from penstock.program.graph import Ask, RemoteAnswer
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["QuestionSlot", "Questions"]

QUESTION_WORDS = 8


class QuestionSlot:
    """One asker's slot at one answerer.

    Attributes:
        arrays: the asker's: ``question`` int64 ``[8]``, ``version`` int64, ``environment_action`` ``[lanes, ...]``,
            and the others.
        stacks: field -> ``[lanes, ...]``.
        carry: name -> ``[lanes, ...]``: the carry of the asker's lanes. Only the asker writes it.
        next_carry: name -> ``[lanes, ...]``: the carry behind the row that is asked about. Only the answerer writes it.
    """

    def __init__(self, memory: StreamMemory, arrays: Arrays, owner: int, answer: RemoteAnswer) -> None:
        self._memory = memory
        self._owner = owner
        self.arrays = arrays
        self.stacks: Arrays = {spec.name: self.arrays[spec.name] for spec in answer.stacks}
        self.carry: Arrays = {spec.name: self.arrays[spec.name] for spec in answer.carry}
        self.next_carry: Arrays = {spec.name: self.arrays[f"next.{spec.name}"] for spec in answer.carry}

    def claim(self, number: int) -> bool:
        """For the asker: claim the slot. False while the question in it is not answered. Numbers rise."""
        return self._memory.claim(self._owner, number) is not None

    def push(self) -> None:
        """For the asker: ask the question that is in its arrays."""
        self._memory.push(0, self._owner)

    def waiting(self) -> bool:
        """For the answerer: true if a question waits."""
        return self._memory.ready() > 0

    def take(self) -> bool:
        """For the answerer: begin to answer. False if no question waits."""
        return self._memory.take(self._owner) is not None

    def release(self) -> None:
        """For the answerer: the question is answered."""
        self._memory.release(0, self._owner)


class Questions:
    """All slots of one edge."""

    def __init__(self, bytes: Array, edge: Ask) -> None:  # noqa: A002 - the package's word for a buffer
        """Attach to ``required(edge)`` bytes, uint8. They start at a multiple of 64 and were zero at first."""
        self._answer = _remote(edge)
        self._arrays: dict[str, Arrays] = {}
        self._memory: dict[str, dict[str, StreamMemory]] = {}
        """By asker, then by answerer."""
        layout, slot_bytes, at = Layout(_specs(edge)), StreamMemory.required((), 1), 0
        for asker in edge.askers:
            self._arrays[asker] = layout.views(bytes, at)
            at += layout.nbytes
            self._memory[asker] = {}
            for node in self._answer.nodes:
                self._memory[asker][node] = StreamMemory(bytes[at:], (), 1)
                at += slot_bytes

    @staticmethod
    def required(edge: Ask) -> int:
        """Bytes that the edge takes; 0 if the askers answer themselves."""
        if not isinstance(edge.answer, RemoteAnswer):
            return 0
        slots = len(edge.answer.nodes) * StreamMemory.required((), 1)
        return len(edge.askers) * (Layout(_specs(edge)).nbytes + slots)

    def slot(self, asker: str, node: str, owner: int) -> QuestionSlot:
        """The slot of ``asker`` at ``node``, for one of its ends. ``owner`` is the life of that end's node."""
        return QuestionSlot(self._memory[asker][node], self._arrays[asker], owner, self._answer)

    def shortest(self, first: int) -> int:
        """Index of the answerer with the fewest open questions; of several, the first one from ``first`` on.

        A look: others may ask at the same moment.
        """
        nodes = self._answer.nodes
        if len(nodes) == 1:
            return 0
        waiting = [sum(len(slots[node].written()) for slots in self._memory.values()) for node in nodes]
        return min(range(len(nodes)), key=lambda index: (waiting[index], (index - first) % len(nodes)))

    def recover_asker(self, asker: str, owner: int) -> bool:
        """Withdraw the question of a dead asker. Call it after the asker's process was killed and reaped.

        Returns:
            True if its slots are free. False while an answerer still writes into the dead asker's rollout: no other
            node may get that rollout yet. Then call it again, or recover the answerer, too.
        """
        return all(_withdrawn(memory, owner) for memory in self._memory[asker].values())

    def recover_answerer(self, node: str, owner: int) -> int:
        """Ask again what a dead answerer had begun to answer. Call it after its process was killed and reaped.

        The next life writes every part of an answer anew, and an asker reads an answer only when it is whole.

        Returns:
            How many questions are asked again; 0 if ``node`` answers none.
        """
        return sum(slots[node].recover(owner).returned for slots in self._memory.values() if node in slots)


def _withdrawn(memory: StreamMemory, owner: int) -> bool:
    """Withdraw a dead asker's question from one slot. True if the slot is free."""
    memory.recover(owner)
    # Race: the answerer may take the question at this moment. One compare-and-swap decides which of the two has it.
    if memory.take(owner) is not None:
        memory.release(0, owner)
    # A claim, because it acquires what the answerer wrote before its release. A plain look would not.
    answered = memory.claim(owner, 0) is not None
    memory.recover(owner)
    return answered


def _specs(edge: Ask) -> tuple[ArraySpec, ...]:
    answer = _remote(edge)
    numbers = ArraySpec("question", (QUESTION_WORDS,), "int64"), ArraySpec("version", (), "int64")
    behind = (replace(spec, name=f"next.{spec.name}") for spec in answer.carry)
    return (*numbers, answer.action, *answer.stacks, *answer.carry, *behind)


def _remote(edge: Ask) -> RemoteAnswer:
    if not isinstance(edge.answer, RemoteAnswer):
        raise TypeError(f"the askers of {edge.name} answer themselves")
    return edge.answer
