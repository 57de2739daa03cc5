"""The questions of an ask edge that nodes answer: one slot for each asker, which goes to its answerer and back.

    writing (the asker's) --push--> ready --take--> reading (the answerer's) --release--> free --claim--> writing

An asker holds its slot while it asks nothing, so at most one of its questions is open. A slot says where the rows lie.
The only observations in it are stacks of frames, because rows hold single frames. The transitions are those of a
stream's slot. Each is one compare-and-swap on a word that names the owner, and their memory order carries the data:

- ``push`` (release) before ``take`` (acquire): the answerer sees the question and its observations;
- ``release`` (release) before ``claim`` (acquire): the asker sees the whole answer, in the rollout and in the slot.

Rings no bell.
"""

from dataclasses import replace

from penstock.memory.stream import Stream as StreamMemory
from penstock.program.graph import Ask, RemoteAnswer
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["QuestionSlot", "Questions"]

QUESTION_WORDS = 8


class QuestionSlot:
    """One asker's slot.

    Attributes:
        arrays: ``question`` int64 ``[8]``, ``version`` int64, ``environment_action`` ``[lanes, ...]``, and the others.
        stacks: field -> ``[lanes, ...]``.
        carry: name -> ``[lanes, ...]``: the carry of the asker's lanes. Only the asker writes it.
        next_carry: name -> ``[lanes, ...]``: the carry behind the row that is asked about. Only the answerer writes it.
    """

    def __init__(self, memory: StreamMemory, owner: int, answer: RemoteAnswer) -> None:
        self._memory = memory
        self._owner = owner
        self.arrays: Arrays = memory.slot(0)
        self.stacks: Arrays = {spec.name: self.arrays[spec.name] for spec in answer.stacks}
        self.carry: Arrays = {spec.name: self.arrays[spec.name] for spec in answer.carry}
        self.next_carry: Arrays = {spec.name: self.arrays[f"next.{spec.name}"] for spec in answer.carry}

    def claim(self, number: int) -> bool:
        """For the asker: claim the slot. False while its last question, ``number - 1``, is not answered."""
        return self._memory.claim(self._owner, number) is not None

    def push(self) -> None:
        """For the asker: ask the question that is in the slot."""
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

    def __init__(self, bytes: Array, edge: Ask) -> None:  # noqa: A002 - the room's word for a buffer
        """Attach to ``required(edge)`` bytes, uint8. They start at a multiple of 64 and were zero at first."""
        specs = _specs(edge)
        self._answer = _remote(edge)
        nbytes = StreamMemory.required(specs, 1)
        self._memory = {
            asker: StreamMemory(bytes[index * nbytes :], specs, 1) for index, asker in enumerate(edge.askers)
        }
        self._edge = edge

    @staticmethod
    def required(edge: Ask) -> int:
        """Bytes that the edge takes; 0 if the askers answer themselves."""
        if not isinstance(edge.answer, RemoteAnswer):
            return 0
        return len(edge.askers) * StreamMemory.required(_specs(edge), 1)

    def slot(self, asker: str, owner: int) -> QuestionSlot:
        """The slot of ``asker``, for one of its two ends. ``owner`` is the incarnation of the node at that end."""
        return QuestionSlot(self._memory[asker], owner, self._answer)

    def recover_asker(self, asker: str, owner: int) -> bool:
        """Withdraw the question of a dead asker. Call it after the asker's process was killed and reaped.

        Returns:
            True if the slot is free. False while the answerer still writes into the dead asker's rollout: no other
            node may get that rollout yet. Then call it again, or recover the answerer, too.
        """
        memory = self._memory[asker]
        memory.recover(owner)
        # Race: the answerer may take the question at this moment. One compare-and-swap decides which of the two has it.
        if memory.take(owner) is not None:
            memory.release(0, owner)
        # A claim, because it acquires what the answerer wrote before its release. A plain look would not.
        answered = memory.claim(owner, 0) is not None
        memory.recover(owner)
        return answered

    def recover_answerer(self, node: str, owner: int) -> int:
        """Ask again what a dead answerer had begun to answer. Call it after its process was killed and reaped.

        The next life writes every part of an answer anew, and an asker reads an answer only when it is whole.

        Returns:
            How many questions are asked again.
        """
        return sum(self._memory[asker].recover(owner).returned for asker in self._edge.answered_by(node))


def _specs(edge: Ask) -> tuple[ArraySpec, ...]:
    answer = _remote(edge)
    numbers = ArraySpec("question", (QUESTION_WORDS,), "int64"), ArraySpec("version", (), "int64")
    behind = (replace(spec, name=f"next.{spec.name}") for spec in answer.carry)
    return (*numbers, answer.action, *answer.stacks, *answer.carry, *behind)


def _remote(edge: Ask) -> RemoteAnswer:
    if not isinstance(edge.answer, RemoteAnswer):
        raise TypeError(f"the askers of {edge.name} answer themselves")
    return edge.answer
