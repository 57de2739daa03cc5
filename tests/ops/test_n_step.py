"""Returns of n steps within sequences, against numbers worked by hand."""

import pytest
import torch

from penstock.ops.n_step import n_step_returns


def returns(reward, value, *, terminated=None, valid=None, n_step=2):
    count = len(reward)
    return n_step_returns(
        torch.tensor([reward]),
        torch.tensor([terminated or [False] * count]),
        torch.tensor([valid or [True] * count]),
        torch.tensor([value]),
        gamma=0.5,
        n_step=n_step,
    )[0].tolist()


def test_two_steps_by_hand():
    """Row 0: 1 + 2/2 + 30/4. Row 1: 2 + 4/2 + 40/4. Row 2, the last one, has one step: 4 + 40/2."""
    assert returns([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]) == [9.5, 14.0, 24.0]


@pytest.mark.parametrize(("n_step", "expected"), [(1, 1 + 10.0), (3, 1 + 1 + 1 + 5.0), (9, 1 + 1 + 1 + 5.0)])
def test_one_step_and_more_than_there_are(n_step, expected):
    assert returns([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0], n_step=n_step)[0] == expected


def test_nothing_follows_a_terminated_row():
    """Row 0: 1 + 2/2. Row 1: 2. Row 2 belongs to the next episode: 4 + 40/2."""
    assert returns([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0], terminated=[False, True, False]) == [2.0, 2.0, 24.0]


def test_a_row_that_is_not_valid_is_a_last_observation():
    """Row 0: 1 + 20/2: row 1 has the last observation of its episode. Row 2 begins another one: 4 + 40/2."""
    assert returns([1.0, 9.0, 4.0], [10.0, 20.0, 30.0, 40.0], valid=[True, False, True]) == [11.0, 20.0, 24.0]
