"""Estimates from kept episodes, against arithmetic."""

import numpy as np
import pytest

from penstock.ops.offline import Transitions, fitted_values, largest_shift, random_features


@pytest.mark.parametrize("action", [0, 1])
def test_the_value_of_a_policy_that_did_not_play(action: int) -> None:
    """Two states in a row; action 1 pays 1 in each. With gamma 0.5 it is worth 1 + 0.5 = 1.5, action 0 nothing."""
    generator = np.random.default_rng(0)
    played = generator.integers(0, 2, (4000, 2))
    pairs = np.eye(4)  # state 0 action 0, state 0 action 1, state 1 action 0, state 1 action 1
    steps = Transitions(
        features=pairs[np.stack([played[:, 0], 2 + played[:, 1]], axis=1).reshape(-1)],
        next_features=np.tile(pairs[2 + action], (8000, 1)),
        reward=played.astype(np.float64).reshape(-1),
        terminated=np.tile([False, True], 4000),
    )
    value = fitted_values(steps, pairs[[action]], 0.5)
    assert value == pytest.approx([1.5 * action], abs=0.02)


def test_a_truncated_episode_goes_on_in_the_estimate() -> None:
    """One state that pays 1 for ever is worth 1 / (1 - 0.9) = 10."""
    steps = Transitions(np.ones((50, 1)), np.ones((50, 1)), np.ones(50), np.zeros(50, np.bool_))
    assert fitted_values(steps, np.ones((1, 1)), 0.9) == pytest.approx([10.0], rel=0.02)


def test_an_estimate_stays_within_what_rewards_can_sum_up_to() -> None:
    """Features that would let the iteration diverge: the next ones are twice as large."""
    steps = Transitions(np.ones((50, 1)), 2.0 * np.ones((50, 1)), np.linspace(0.0, 1.0, 50), np.zeros(50, np.bool_))
    value = fitted_values(steps, 1e6 * np.ones((1, 1)), 0.9)
    assert 0.0 <= value[0] <= 10.0


def test_an_action_that_nobody_tried_is_worth_the_mean() -> None:
    tried, never = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    reward = np.array([5.0, 7.0])
    steps = Transitions(np.repeat(tried, 2, 0), np.repeat(never, 2, 0), reward, np.ones(2, np.bool_))
    assert fitted_values(steps, never, 0.9) == pytest.approx([6.0])


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ([[0.0], [1.0]], [[0.0], [1.0]], 0.0),
        ([[0.0], [1.0]], [[2.0], [3.0]], 1.0),
        # Shares of values up to 1: 1/2 and 1/4.
        ([[1.0], [2.0]], [[1.0], [2.0], [2.0], [2.0]], 0.25),
        # The second column differs, the first does not.
        ([[5.0, 0.0]], [[5.0, 1.0]], 1.0),
    ],
)
def test_a_shift_is_the_largest_distance_of_a_column(before, after, wanted: float) -> None:
    assert largest_shift(np.array(before), np.array(after)) == wanted


def test_random_features_are_close_where_values_are() -> None:
    values = np.array([[0.0, 0.0], [0.01, 0.0], [3.0, 3.0]])
    found = random_features(values, 256, 1)
    products = found @ found.T
    # Their products approximate exp(-|x - y|^2 / (2 d)): 1, 1 and exp(-18 / 4) = 0.01.
    np.testing.assert_allclose(products[0], [1.0, 1.0, 0.01], atol=0.2)
    np.testing.assert_array_equal(found, random_features(values, 256, 1))
