"""The number of threads follows what calls took."""

import pytest

from penstock.kernels.pace import PERIOD, TRIALS, Pace

MINIBATCH = 64 * 8_963
"""Rows times parameters of the published setting."""


def calls(pace, count, cost, minibatches=256):
    """The choices of so many calls, each of which takes ``cost[threads]``."""
    work, chosen = minibatches * MINIBATCH, []
    for _ in range(count):
        threads = pace.threads(work)
        pace.took(threads, work, cost[threads])
        chosen.append(threads)
    return chosen


def test_one_thread_stays_one():
    assert calls(Pace(1), 1000, {1: 1.0}) == [1] * 1000


@pytest.mark.parametrize(("minibatches", "most"), [(1, 1), (3, 1), (4, 2)])
def test_little_work_is_not_worth_a_second_thread(minibatches, most):
    assert max(calls(Pace(2), 20, {1: 1.0, 2: 0.5}, minibatches)) == most


def test_the_quicker_is_found_at_once_and_the_slower_tried_now_and_then():
    for cost, quicker in (({1: 0.051, 2: 0.027}, 2), ({1: 0.051, 2: 0.095}, 1)):
        chosen = calls(Pace(2), 10 * PERIOD, cost)
        assert chosen[2 * TRIALS : PERIOD] == [quicker] * (PERIOD - 2 * TRIALS)
        assert chosen.count(quicker) / len(chosen) > 0.98


def test_a_change_is_followed():
    pace = Pace(2)
    calls(pace, 100, {1: 0.051, 2: 0.027})
    busy = calls(pace, 2 * PERIOD, {1: 0.051, 2: 0.095})
    assert busy[TRIALS : PERIOD // 2] == [1] * (PERIOD // 2 - TRIALS)
    free = calls(pace, 2 * PERIOD, {1: 0.051, 2: 0.027})
    assert free[PERIOD + TRIALS :].count(2) > 0.98 * (PERIOD - TRIALS)


def test_one_interrupted_call_changes_nothing():
    pace = Pace(2)
    calls(pace, 50, {1: 0.051, 2: 0.027})
    calls(pace, 1, {1: 0.051, 2: 5.0})
    assert set(calls(pace, 100, {1: 0.051, 2: 0.027})) == {2}
