"""What answers batches: its acting sessions, of which only a few are kept, and rows that only fill a batch."""

from typing import Any

import numpy as np
import pytest

from penstock.policies.batch_sizes import BatchSizes
from penstock.serving.server.policy.answering import Answer, Answerer, Questions
from penstock.types import Arrays, Discrete
from tests.serving.server.harness import SPACES, source_of


class Counted:
    """A policy that notes the size of each acting session that is made."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.made: list[int] = []

    def session(self, lanes: int = 1) -> Any:
        self.made.append(lanes)
        return self._policy.session(lanes)


def questions(policy: Any, count: int) -> Questions:
    fields = {spec.name: np.ones((count, *spec.shape), spec.dtype) for spec in policy.spaces.obs_specs()}
    return Questions(fields, np.ones(count, np.bool_), {})


def test_sizes_that_were_not_asked_for_lately_give_their_memory_back() -> None:
    policy = source_of("plain").policy()
    counted: Any = Counted(policy)
    answerer = Answerer(counted, 4, BatchSizes("none"))
    for count in (4, 3, 4, 3):
        assert len(answerer.answer(questions(policy, count)).action) == count
    # Eight times four lanes may be kept.
    for count in (10, 10, 11):
        answerer.answer(questions(policy, count))
    assert counted.made == [4, 3, 10, 11]
    # 4 + 3 + 10 + 11 + 5 are 33: the four lanes were not used for the longest time.
    for count in (5, 3, 10, 11, 4):
        answerer.answer(questions(policy, count))
    assert counted.made == [4, 3, 10, 11, 5, 4]


def made_up(policy: Any, generator: np.random.Generator, count: int, carry: Arrays) -> Questions:
    """Questions of so many lanes, which go on with this carry. Of a mask, the first choice is always allowed."""
    fields = {}
    for (name, space), spec in zip(policy.spaces.obs, policy.spaces.obs_specs(), strict=True):
        values = generator.random((count, *spec.shape))
        if name == policy.spaces.mask:
            values = values.round()
            values[:, 0] = 1
        if isinstance(space, Discrete):
            values = space.start + values * space.n
        fields[name] = values.astype(spec.dtype)
    return Questions(fields, generator.random(count) < 0.3, carry)


@pytest.mark.parametrize("sizes", ["powers", (4, 20)])
@pytest.mark.parametrize("kind", SPACES)
def test_rows_that_fill_a_batch_change_no_bit_of_the_others(kind: str, sizes: Any) -> None:
    policy: Any = source_of(kind).policy()
    counted: Any = Counted(policy)
    alone, padded = (Answerer(one, 32, BatchSizes(of)) for one, of in ((policy, "none"), (counted, sizes)))
    generator = np.random.default_rng(3)
    kept = {name: values.copy() for name, values in policy.session(32).carry.items()}
    for count in (1, 5, 3, 17, 5, 32, 2):
        asked = made_up(policy, generator, count, {name: values[:count].copy() for name, values in kept.items()})
        expected, found = alone.answer(asked), padded.answer(asked)
        for one, other in zip(_arrays(found), _arrays(expected), strict=True):
            assert len(one) == count
            np.testing.assert_array_equal(one, other)
        for name, values in found.carry.items():
            kept[name][:count] = values
    made = {"powers": [1, 8, 4, 32, 2], (4, 20): [4, 20, 40]}
    assert counted.made == made[sizes]
    assert kind != "memory" or any(values.any() for values in kept.values())


def _arrays(answer: Answer) -> list[Any]:
    return [answer.action, *answer.carry.values()]
