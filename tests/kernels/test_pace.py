"""The number of threads follows the times of calls."""

import pytest

from penstock.kernels.pace import PERIOD, TRIALS, WINDOW, Pace

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


def test_two_threads_that_are_quicker_are_found_and_kept():
    chosen = calls(Pace(2), 1000, {1: 0.051, 2: 0.027})
    assert chosen == [1] * TRIALS + [2] * (1000 - TRIALS)


def test_two_threads_that_are_slower_are_tried_now_and_then():
    chosen = calls(Pace(2), 1000, {1: 0.051, 2: 0.095})
    assert chosen[: 2 * TRIALS] == [1] * TRIALS + [2] * TRIALS
    assert chosen[2 * TRIALS : 2 * TRIALS + PERIOD] == [1] * PERIOD
    assert chosen.count(2) < 0.04 * 1000


def test_a_change_is_followed():
    pace = Pace(2)
    calls(pace, 100, {1: 0.051, 2: 0.027})
    busy = calls(pace, 60, {1: 0.051, 2: 0.095})
    assert busy[: WINDOW // 2 + 1] == [2] * (WINDOW // 2 + 1)
    assert busy[WINDOW // 2 + 1 :] == [1] * (60 - WINDOW // 2 - 1)
    free = calls(pace, 2 * PERIOD, {1: 0.051, 2: 0.027})
    assert free[PERIOD:] == [2] * PERIOD


def test_interrupted_calls_change_nothing():
    pace = Pace(2)
    calls(pace, 50, {1: 0.051, 2: 0.027})
    calls(pace, 5, {1: 0.051, 2: 5.0})
    assert set(calls(pace, 100, {1: 0.051, 2: 0.027})) == {2}
