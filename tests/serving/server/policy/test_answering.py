"""What answers batches: its acting sessions, of which only a few are kept."""

from typing import Any

import numpy as np

from penstock.serving.server.policy.answering import Answerer, Questions
from tests.serving.server.harness import source_of


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
    answerer = Answerer(counted, max_batch=4)
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
