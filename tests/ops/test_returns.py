"""Advantages of a whole slot: the value from which a truncated episode bootstraps is read from the slot."""

import numpy as np
import pytest

from penstock.ops.returns import advantages

GAMMA, LAMBDA = 0.5, 0.5


def slot(reward, value, *, terminated=(), truncated=(), invalid=(), final=()):
    """A slot of one lane."""
    steps = len(reward)
    flags = {name: np.zeros((steps + 1, 1), bool) for name in ("terminated", "truncated")}
    flags["terminated"][list(terminated)] = True
    flags["truncated"][list(truncated)] = True
    valid = np.ones((steps + 1, 1), bool)
    valid[list(invalid)] = False
    arrays = {
        "reward": np.array([*reward, 0.0], np.float32)[:, None],
        "value": np.array(value, np.float32)[:, None],
        "valid": valid,
        "final_count": np.array(len(final)),
        "final_t": np.zeros(steps, np.int64),
        "final_lane": np.zeros(steps, np.int64),
        "final_value": np.zeros(steps, np.float32),
        **flags,
    }
    for entry, (t, values) in enumerate(final):
        arrays["final_t"][entry], arrays["final_value"][entry] = t, values
    return arrays


def test_plain_rows_by_hand():
    # delta_1 = 2 + 0.5 * 8 - 4 = 2; delta_0 = 1 + 0.5 * 4 - 2 = 1; A_1 = 2, A_0 = 1 + 0.25 * 2 = 1.5
    advantage, target = advantages(slot([1.0, 2.0], [2.0, 4.0, 8.0]), GAMMA, LAMBDA)
    assert advantage.ravel().tolist() == [1.5, 2.0]
    assert target.ravel().tolist() == [3.5, 6.0]


def test_a_terminated_row_bootstraps_from_nothing():
    # delta_0 = 1 - 2 = -1 and the sum ends there.
    advantage, _ = advantages(slot([1.0, 2.0], [2.0, 4.0, 8.0], terminated=[0]), GAMMA, LAMBDA)
    assert advantage.ravel().tolist() == [-1.0, 2.0]


def test_same_step_sources_bootstrap_from_the_side_area():
    # The last observation of the episode was worth 10: delta_0 = 1 + 0.5 * 10 - 2 = 4.
    advantage, _ = advantages(slot([1.0, 2.0], [2.0, 4.0, 8.0], truncated=[0], final=[(0, 10.0)]), GAMMA, LAMBDA)
    assert advantage.ravel().tolist() == [4.0, 2.0]


def test_next_step_sources_bootstrap_from_the_reset_row():
    # Row 1 is the reset row: its observation is the last one, worth 10. delta_0 = 1 + 0.5 * 10 - 2 = 4; row 1 counts
    # for nothing; delta_2 = 2 + 0.5 * 8 - 4 = 2.
    arrays = slot([1.0, 0.0, 2.0], [2.0, 10.0, 4.0, 8.0], truncated=[0], invalid=[1])
    advantage, _ = advantages(arrays, GAMMA, LAMBDA)
    assert advantage.ravel().tolist() == [4.0, 0.0, 2.0]


@pytest.mark.parametrize("same_step", [True, False])
def test_a_state_worth_ten_is_worth_ten_however_it_is_cut(same_step):
    # Reward 1 for ever at gamma 0.9 is worth 1 / (1 - 0.9) = 10: with right values every advantage is 0.
    final = [(1, 10.0)] if same_step else []
    arrays = slot([1.0] * 4, [10.0] * 5, truncated=[1], final=final, invalid=[] if same_step else [2])
    advantage, target = advantages(arrays, 0.9, 0.95)
    keep = arrays["valid"][:4]
    assert advantage[keep].tolist() == pytest.approx([0.0] * int(keep.sum()), abs=1e-5)
    assert target[keep].tolist() == pytest.approx([10.0] * int(keep.sum()), abs=1e-5)
