"""Ape-X: its differences from DQN, and first priorities against arithmetic by hand."""

import numpy as np
import pytest

from penstock.algorithm import Priorities
from penstock.algorithms.apex import spec
from penstock.algorithms.apex.priorities import initial_priority
from penstock.algorithms.dqn.spec import LEAST_PRIORITY
from penstock.policies.exploration import Ladder
from penstock.registry import load
from tests.algorithms.replay_rows import DISCRETE


def rollout(q, reward, terminated=(), truncated=(), invalid=()):
    """One lane. ``q`` is the value of action 0, which is taken; action 1 has 1 more. The last row is the bootstrap."""
    rows = len(q)
    found = {
        "q": np.stack([np.array(q, np.float32), np.array(q, np.float32) + 1.0], 1)[:, None],
        "reward": np.array(reward, np.float32)[:, None],
        "action": np.zeros((rows, 1), np.int64),
    }
    for name, at in (("terminated", terminated), ("truncated", truncated)):
        found[name] = np.isin(np.arange(rows), at)[:, None]
    found["valid"] = ~np.isin(np.arange(rows), (*invalid, rows - 1))[:, None]
    return found


def priorities(n_step, **rows):
    config = spec.ApexConfig(n_step=n_step, gamma=0.5)
    found = initial_priority(rollout(**rows), config)
    assert found.dtype == np.float32
    # LEAST_PRIORITY is added to each error of a valid row; subtract it there.
    return [value - LEAST_PRIORITY * (value > 0.0) for value in found[:, 0].tolist()]


def test_two_steps_by_hand():
    # Row 0: 1 + 0.5 * 2 + 0.25 * (4 + 1) - 10 = -6.75; row 1: 2 + 0.5 * 3 + 0.25 * (7 + 1) - 3 = 2.5.
    # Row 2 has one step: 3 + 0.5 * (7 + 1) - 4 = 3. Row 3 has none, so it gets the largest. Row 4 is never read.
    found = priorities(2, q=[10.0, 3.0, 4.0, 7.0, np.nan], reward=[1.0, 2.0, 3.0, 4.0, np.nan])
    assert found == pytest.approx([6.75, 2.5, 3.0, 6.75])


def test_the_value_behind_a_row_is_of_a_possible_action():
    config = spec.ApexConfig(n_step=1, gamma=0.5)
    rows = rollout([10.0, 3.0, 4.0, 0.0], [1.0, 2.0, 3.0, 0.0])
    rows["obs.action_mask"] = np.array([[1, 1], [1, 0], [0, 0], [1, 1]], np.uint8)[:, None]
    found = initial_priority(rows, config)[:, 0] - LEAST_PRIORITY
    # Row 0: 1 + 0.5 * 3 - 10, action 1 is not possible in row 1; row 1: 2 + 0.5 * (4 + 1) - 3, nothing is in row 2.
    assert found.tolist() == pytest.approx([7.5, 1.5, 7.5, -LEAST_PRIORITY][: len(found)])


def test_a_terminated_row_ends_the_chain_and_is_worth_nothing_behind():
    # Row 0: 1 + 0.5 * 2 - 10; row 1: 2 - 3; row 2 begins anew: 3 + 0.5 * 8 - 4.
    found = priorities(3, q=[10.0, 3.0, 4.0, 7.0, 0.0], reward=[1.0, 2.0, 3.0, 4.0, 0.0], terminated=[1])
    assert found == pytest.approx([8.0, 1.0, 3.0, 8.0])


def test_a_terminated_last_row_needs_nothing_behind_it():
    found = priorities(1, q=[10.0, 3.0, 0.0], reward=[1.0, 2.0, 0.0], terminated=[1])
    # Row 0: 1 + 0.5 * (3 + 1) - 10; row 1: 2 - 3.
    assert found == pytest.approx([7.0, 1.0])


def test_a_truncated_row_is_left_out_of_the_chain():
    # Row 0: 1 + 0.5 * (3 + 1) - 10. Row 1 is truncated and its last observation is not in the slot: the largest.
    found = priorities(3, q=[10.0, 3.0, 4.0, 7.0, 0.0], reward=[1.0, 2.0, 3.0, 4.0, 0.0], truncated=[1])
    assert found == pytest.approx([7.0, 7.0, 3.0, 7.0])


def test_a_row_that_is_not_valid_ends_the_chain_with_its_own_value():
    # Row 0: 1 + 0.5 * 2 + 0.25 * (4 + 1) - 10; row 1: 2 + 0.5 * 5 - 3; row 2 carries no transition.
    found = priorities(3, q=[10.0, 3.0, 4.0, 7.0, 0.0], reward=[1.0, 2.0, 99.0, 4.0, 0.0], invalid=[2])
    assert found == pytest.approx([6.75, 1.5, 0.0, 6.75])


def test_more_steps_than_rows():
    # 1 + 0.5 * (3 + 1) - 10; the last row has no step.
    assert priorities(5, q=[10.0, 3.0, 0.0], reward=[1.0, 2.0, 0.0]) == pytest.approx([7.0, 7.0])


def test_a_slot_of_one_row_that_says_nothing():
    assert np.isnan(priorities(3, q=[10.0, 3.0], reward=[1.0, 2.0])).all()


def test_lanes_do_not_mix():
    one = rollout(q=[10.0, 3.0, 4.0], reward=[1.0, 2.0, 3.0])
    other = rollout(q=[0.0, 0.0, 4.0], reward=[0.0, 0.0, 0.0], terminated=[0, 1])
    both = {name: np.concatenate((values, other[name]), 1) for name, values in one.items()}
    found = initial_priority(both, spec.ApexConfig(n_step=1, gamma=0.5))
    assert found[:, 0].tolist() == pytest.approx([7.0 + LEAST_PRIORITY] * 2)
    assert found[:, 1].tolist() == pytest.approx([LEAST_PRIORITY] * 2)


def test_ape_x_is_dqn_with_these_settings():
    found = spec.spec(DISCRETE, spec.ApexConfig())
    assert found.explore == Ladder(0.4, 7.0)
    assert (found.table.capacity, found.table.n_step) == (1_000_000, 3)
    assert found.table.priorities == Priorities(0.6, 0.4)
    assert [(part.name, part.shape) for part in found.row] == [("q", (3,))]
    assert load(found.initial_priority) is initial_priority
    # With atoms a learner's priorities have another unit than errors of values, so rows have no first priority.
    for plain in (spec.ApexConfig(prioritised=False), spec.ApexConfig(atoms=51)):
        found = spec.spec(DISCRETE, plain)
        assert (found.row, found.initial_priority) == ((), None)
