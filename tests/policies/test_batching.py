"""When a batch of questions leaves, whom it waits for, and which questions are in it. Times are given, not measured."""

import math

import pytest

from penstock.policies.batching import BatchRule, QuestionQueue
from penstock.types import Question, Wanted

LANES = 4


def asked(asker: int, *, again: bool = True, finals: int = 0) -> Question:
    """A question about a row, or about so many last observations."""
    wanted = Wanted.FINAL_VALUE if finals else Wanted.ROW
    return Question(asker, wanted, False, again, slot=0, row=0, finals=finals, step=0, first_lane=asker * LANES)


def askers(batch: list[Question]) -> list[int]:
    return [question.asker for question in batch]


@pytest.mark.parametrize(
    ("rows", "waited", "outstanding", "leaves"),
    [
        (7, 0.0, 1, False),
        (8, 0.0, 1, True),  # max_batch
        (1, 0.0, 0, True),  # nobody is left
        (1, 0.4, 1, False),
        (1, 0.5, 1, True),  # max_wait
    ],
)
def test_a_batch_leaves_for_one_of_three_reasons(rows: int, waited: float, outstanding: int, leaves: bool) -> None:
    assert BatchRule(8, 0.5).leaves(rows, waited, outstanding) is leaves


def test_without_a_limit_no_number_of_rows_is_enough() -> None:
    assert not BatchRule(None, 0.5).leaves(1_000_000, 0.0, 1)
    assert BatchRule(None, 0.0).leaves(1, 0.0, 1)


def test_a_batch_that_waits_for_nobody_is_what_has_arrived() -> None:
    queue = QuestionQueue(BatchRule(None, 0.0), LANES)
    assert not queue.leaves(10.0)
    assert queue.due() == math.inf
    for now in (10.0, 11.0):
        queue.add([asked(1), asked(0)], now)
        assert queue.leaves(now)
        assert askers(queue.take(now)) == [1, 0]
        assert not queue.leaves(now)


def test_a_batch_waits_for_those_who_will_ask_again() -> None:
    queue = QuestionQueue(BatchRule(None, 0.5), LANES)
    queue.add([asked(0), asked(1)], 10.0)
    assert queue.leaves(10.0)  # of others it does not know yet
    assert askers(queue.take(10.0)) == [0, 1]
    queue.add([asked(1)], 11.0)
    assert not queue.leaves(11.0)
    assert queue.due() == 11.5
    queue.add([asked(0)], 11.25)
    assert queue.leaves(11.25)
    assert askers(queue.take(11.25)) == [1, 0]
    assert queue.due() == math.inf


def test_nobody_waits_for_an_asker_between_two_rollouts() -> None:
    queue = QuestionQueue(BatchRule(None, 0.5), LANES)
    queue.add([asked(0, again=False), asked(1)], 10.0)
    queue.take(10.0)
    queue.add([asked(1)], 11.0)
    assert queue.leaves(11.0)


def test_a_batch_waits_no_longer_than_max_wait_and_once_for_each_question() -> None:
    queue = QuestionQueue(BatchRule(None, 0.5), LANES)
    queue.add([asked(0), asked(1)], 10.0)
    queue.take(10.0)
    queue.add([asked(1)], 11.0)
    assert not queue.leaves(11.25)
    assert queue.leaves(11.5)
    assert askers(queue.take(11.5)) == [1]
    # Asker 0 still steps. It has been waited for once.
    queue.add([asked(1)], 12.0)
    assert queue.leaves(12.0)
    queue.take(12.0)
    # It asks, so it is outstanding again.
    queue.add([asked(0)], 13.0)
    assert not queue.leaves(13.0)
    queue.add([asked(1)], 13.25)
    queue.take(13.25)
    queue.add([asked(1)], 14.0)
    assert not queue.leaves(14.0)


def test_a_batch_has_at_most_max_batch_rows_and_the_oldest_questions() -> None:
    queue = QuestionQueue(BatchRule(2 * LANES + 1, 0.5), LANES)
    queue.add([asked(0), asked(1), asked(2), asked(3)], 10.0)
    assert queue.leaves(10.0)
    assert askers(queue.take(10.0)) == [0, 1]
    # Those who were answered ask again, and stand behind those who still wait.
    queue.add([asked(0), asked(1)], 10.25)
    assert queue.leaves(10.25)
    assert askers(queue.take(10.25)) == [2, 3]
    assert queue.due() == 10.75
    assert not queue.leaves(10.25)


def test_a_question_with_more_rows_than_a_batch_leaves_alone() -> None:
    queue = QuestionQueue(BatchRule(LANES, 0.5), LANES)
    queue.add([asked(0, finals=3 * LANES, again=False), asked(1)], 10.0)
    assert askers(queue.take(10.0)) == [0]
    assert askers(queue.take(10.0)) == [1]


def test_questions_about_last_observations_count_these() -> None:
    queue = QuestionQueue(BatchRule(LANES, 0.5), LANES)
    queue.add([asked(0), asked(1)], 10.0)
    assert askers(queue.take(10.0)) == [0]
    queue.take(10.0)
    queue.add([asked(0, finals=LANES - 1)], 11.0)
    assert not queue.leaves(11.0)
    queue.add([asked(1, finals=1)], 11.0)
    assert askers(queue.take(11.0)) == [0, 1]
