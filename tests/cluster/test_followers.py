"""A host keeps the gradients and rollouts of its learners until the parameters come that settle them."""

import numpy as np
import pytest

from penstock.cluster.cut import RELAY, host_program
from penstock.cluster.followers import Followers
from penstock.cluster.messages import SlotCopy, Task
from penstock.cluster.parcels import packed
from penstock.memory.stream import Stream as StreamMemory
from penstock.program.graph import Program, Stream
from penstock.types import Arrays
from tests.cluster.handing import spread_program, wired

OWNER, LIFE = 99, 7
NAME = "learner.1"


class Here:
    """A host with one learner that has batches of one rollout."""

    def __init__(self, program: Program) -> None:
        self.program = host_program(program)
        self._wiring = wired(self.program)
        self.followers = Followers(self.program, self._wiring, OWNER)
        self.gradients, self.rollouts = self._memory(f"gradients.{NAME}"), self._memory("rollouts")

    def _memory(self, name: str) -> StreamMemory:
        edge = self.program.edge(name)
        assert isinstance(edge, Stream)
        assert RELAY in {*edge.writers, *edge.readers}
        return StreamMemory(self._wiring.bytes_of(name), edge.arrays, edge.slots)

    def task(self, **handed: tuple[SlotCopy, ...]) -> Task:
        return Task(self.program.node(NAME), LIFE, (), 1, (), **handed)

    def content(self, stream: StreamMemory, **values: object) -> Arrays:
        arrays = {name: np.zeros_like(array) for name, array in stream.slot(0).items()}
        for name, value in values.items():
            arrays[name][...] = value
        return arrays

    def gradient(self, step: int, rollout: int, *, last: bool) -> SlotCopy:
        values = {"learner": 0, "step": step, "rollouts": rollout, "last": last, "sent": 8}
        return SlotCopy(2 * step, packed(self.content(self.gradients, **values)))

    def rollout(self, sequence: int) -> SlotCopy:
        return SlotCopy(sequence, packed(self.content(self.rollouts, policy_version=sequence)))

    def held(self) -> tuple[set[int], set[int]]:
        """Sequences of gradients and of rollouts."""
        return set(self.gradients.written()), set(self.rollouts.written())

    def settle(self, step: int) -> None:
        self.followers.settle({"settled": np.array([step, 0])}, version=step)


@pytest.fixture
def here() -> Here:
    return Here(spread_program())


def test_the_next_life_finds_what_is_under_way(here: Here) -> None:
    handed_on = (here.gradient(4, 0, last=False), here.gradient(5, 0, last=True))
    here.followers.begin(here.task(handed_on=handed_on, rollouts=(here.rollout(0), here.rollout(2))))
    assert here.held() == ({8, 10}, {0, 2})
    # They are at home already, so the host takes none of them to be sent.
    assert here.gradients.ready() == 0
    shown = {sequence: here.rollouts.slot(slot) for sequence, slot in here.rollouts.written().items()}
    assert all((rollout["policy_version"] == sequence).all() for sequence, rollout in shown.items())


def test_rollouts_are_freed_with_the_last_gradient_of_their_batch(here: Here) -> None:
    here.followers.begin(here.task(rollouts=(here.rollout(0),)))
    here.followers.show(NAME, [here.rollout(2)])
    for step, last in ((1, False), (2, True)):
        index = here.gradients.claim(LIFE, 2 * step)
        assert index is not None
        values = {"learner": 0, "step": step, "rollouts": 0, "last": last}
        for name, value in values.items():
            here.gradients.slot(index)[name][...] = value
        here.gradients.push(index, LIFE)
        assert here.gradients.take(OWNER) == index
    here.settle(1)
    assert here.held() == ({4}, {0, 2})
    here.settle(2)
    assert here.held() == (set(), {2})


def test_a_learner_that_leaves_takes_its_rollouts_along(here: Here) -> None:
    here.followers.begin(here.task(rollouts=(here.rollout(0),)))
    here.followers.drop(NAME)
    assert here.held() == (set(), set())


def test_what_was_settled_meanwhile_is_freed_at_once(here: Here) -> None:
    here.settle(4)
    handed_on = (here.gradient(4, 0, last=False), here.gradient(5, 0, last=True))
    here.followers.begin(here.task(handed_on=handed_on, rollouts=(here.rollout(0),)))
    assert here.held() == ({10}, {0})


def test_in_step_an_answer_to_an_earlier_version_is_settled(here: Here) -> None:
    here.followers.begin(here.task(handed_on=(here.gradient(4, 0, last=False),)))
    here.followers.settle({"settled": np.array([3, 0]), "begun": np.array(0)}, version=0)
    assert here.held()[0] == {8}
    here.followers.settle({"settled": np.array([3, 0]), "begun": np.array(0)}, version=1)
    assert here.held()[0] == set()
