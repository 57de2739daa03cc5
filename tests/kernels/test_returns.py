"""Advantages worked out by hand, and against the plain recursion on random rollouts."""

import numpy as np
import pytest
import torch

from penstock.kernels.returns import Correction, gae
from penstock.ops.vtrace import Steps, vtrace


def estimated(rollout, gamma, gae_lambda, *, same_step=True, finals=(), correction=None):
    """``finals`` holds (t, lane, value)."""
    steps, lanes = np.shape(rollout["reward"])
    arrays = {
        "reward": np.array(rollout["reward"], np.float32),
        "value": np.array(rollout["value"], np.float32),
        "terminated": np.array(rollout.get("terminated", np.zeros((steps, lanes))), bool),
        "truncated": np.array(rollout.get("truncated", np.zeros((steps, lanes))), bool),
        "valid": np.array(rollout.get("valid", np.ones((steps, lanes))), bool),
        "final_t": np.array([final[0] for final in finals] + [0], np.int64),
        "final_lane": np.array([final[1] for final in finals] + [0], np.int64),
        "final_value": np.array([final[2] for final in finals] + [np.nan], np.float32),
        "advantage": np.full((steps, lanes), np.nan, np.float32),
        "target": np.full((steps, lanes), np.nan, np.float32),
    }
    settings = {"same_step": same_step, "gamma": gamma, "gae_lambda": gae_lambda, "correction": correction}
    gae(**arrays, final_count=len(finals), **settings)
    return arrays["advantage"], arrays["target"]


def column(*numbers):
    return np.array(numbers, float)[:, None]


def test_three_rows_by_hand():
    # gamma 0.5, lambda 0.5. Values 1 2 3 | 4, rewards 1 1 1.
    # delta_2 = 1 + 0.5 * 4 - 3 = 0;    A_2 = 0
    # delta_1 = 1 + 0.5 * 3 - 2 = 0.5;  A_1 = 0.5 + 0.25 * 0 = 0.5
    # delta_0 = 1 + 0.5 * 2 - 1 = 1;    A_0 = 1 + 0.25 * 0.5 = 1.125
    advantage, target = estimated({"reward": column(1, 1, 1), "value": column(1, 2, 3, 4)}, 0.5, 0.5)
    np.testing.assert_array_equal(advantage, column(1.125, 0.5, 0))
    np.testing.assert_array_equal(target, column(2.125, 2.5, 3))


def test_an_importance_that_is_no_number_stays_none():
    correction = Correction(column(0, np.nan).astype(np.float32), 1.0, 1.0)
    advantage, _ = estimated({"reward": column(1, 1), "value": column(1, 2, 3)}, 0.5, 0.5, correction=correction)
    assert np.isnan(advantage).all()


def test_a_terminated_row_bootstraps_nothing_and_cuts_the_chain():
    # delta_1 = 1 - 2 = -1; A_1 = -1, whatever follows. A_0 = (1 + 0.5 * 2 - 1) + 0.25 * -1 = 0.75. A_2 as above is 0.
    rollout = {"reward": column(1, 1, 1), "value": column(1, 2, 3, 4), "terminated": column(0, 1, 0)}
    for same_step in (True, False):
        advantage, target = estimated(rollout, 0.5, 0.5, same_step=same_step)
        np.testing.assert_array_equal(advantage, column(0.75, -1, 0))
        np.testing.assert_array_equal(target, column(1.75, 1, 3))


def test_terminated_wins_over_truncated():
    rollout = {
        "reward": column(1, 1, 1),
        "value": column(1, 2, 3, 4),
        "terminated": column(0, 1, 0),
        "truncated": column(0, 1, 0),
    }
    for finals in ((), [(1, 0, 100.0)]):
        np.testing.assert_array_equal(estimated(rollout, 0.5, 0.5, finals=finals)[0], column(0.75, -1, 0))


def test_a_truncated_row_of_a_same_step_source_bootstraps_from_its_final_value():
    # Row 1 ends an episode; its last observation has value 10. Row 2 is the first of another episode.
    # delta_1 = 1 + 0.5 * 10 - 2 = 4 = A_1. A_0 = 1 + 0.25 * 4 = 2.
    rollout = {"reward": column(1, 1, 1), "value": column(1, 2, 3, 4), "truncated": column(0, 1, 0)}
    advantage, _ = estimated(rollout, 0.5, 0.5, finals=[(1, 0, 10.0)])
    np.testing.assert_array_equal(advantage, column(2, 4, 0))


def test_a_truncated_row_of_a_next_step_source_bootstraps_from_the_reset_row():
    # Row 1 ends; row 2 is the reset row, whose observation is row 1's last one, worth 10. It is not valid: advantage 0.
    # delta_1 = 1 + 0.5 * 10 - 2 = 4 = A_1. A_0 = 2. Row 3: 1 + 0.5 * 4 - 3 = 0.
    rollout = {
        "reward": column(1, 1, 7, 1),
        "value": column(1, 2, 10, 3, 4),
        "truncated": column(0, 1, 0, 0),
        "valid": column(1, 1, 0, 1),
    }
    advantage, _ = estimated(rollout, 0.5, 0.5, same_step=False)
    np.testing.assert_array_equal(advantage, column(2, 4, 0, 0))


def test_a_rollout_may_begin_and_end_with_a_reset_row():
    # Rows 0 and 3 are reset rows. Row 2 terminated: A_2 = 1 - 3 = -2. A_1 = (1 + 0.5 * 3 - 2) + 0.25 * -2 = 0.
    rollout = {
        "reward": column(9, 1, 1, 9),
        "value": column(1, 2, 3, 5, 4),
        "terminated": column(0, 0, 1, 0),
        "valid": column(0, 1, 1, 0),
    }
    advantage, _ = estimated(rollout, 0.5, 0.5, same_step=False)
    np.testing.assert_array_equal(advantage, column(0, 0, -2, 0))


@pytest.mark.parametrize("same_step", [True, False])
def test_the_clock_task_is_worth_ten_everywhere(same_step):
    # Reward 1 and gamma 0.9: 1 / (1 - 0.9) = 10. A clock cuts every episode after 20 steps; that is no end.
    steps, lanes = 64, 3
    truncated, valid, finals = np.zeros((steps, lanes)), np.ones((steps, lanes)), []
    for lane in range(lanes):
        t = 19 - lane
        while t < steps:
            truncated[t, lane] = 1
            finals.append((t, lane, 10.0))
            if not same_step and t + 1 < steps:
                valid[t + 1, lane] = 0
            t += 20 if same_step else 21
    rollout = {
        "reward": np.ones((steps, lanes)),
        "value": np.full((steps + 1, lanes), 10.0),
        "truncated": truncated,
        "valid": valid,
    }
    advantage, target = estimated(rollout, 0.9, 0.95, same_step=same_step, finals=finals if same_step else ())
    np.testing.assert_allclose(advantage, 0.0, atol=1e-6)
    np.testing.assert_allclose(target, 10.0, atol=1e-6)


def plain(rollout, gamma, gae_lambda, same_step, finals):
    """The recursion as it is written in the paper, lane by lane."""
    steps, lanes = rollout["reward"].shape
    advantage = np.zeros((steps, lanes))
    final = {(t, lane): value for t, lane, value in finals}
    for lane in range(lanes):
        following = 0.0
        for t in reversed(range(steps)):
            if not rollout["valid"][t, lane]:
                following = 0.0
                continue
            bootstrap = rollout["value"][t + 1, lane]
            if rollout["terminated"][t, lane]:
                bootstrap, following = 0.0, 0.0
            elif rollout["truncated"][t, lane]:
                bootstrap, following = (final[t, lane] if same_step else bootstrap), 0.0
            delta = rollout["reward"][t, lane] + gamma * bootstrap - rollout["value"][t, lane]
            following = advantage[t, lane] = delta + gamma * gae_lambda * following
    return advantage


@pytest.mark.parametrize("same_step", [True, False])
@pytest.mark.parametrize("lanes", [1, 2, 5, 16])
def test_random_rollouts(lanes, same_step):
    generator, steps = np.random.default_rng(lanes), 50
    rollout = {
        "reward": generator.normal(size=(steps, lanes)).astype(np.float32),
        "value": generator.normal(size=(steps + 1, lanes)).astype(np.float32),
        "terminated": generator.random((steps, lanes)) < 0.1,
        "truncated": generator.random((steps, lanes)) < 0.1,
        "valid": np.ones((steps, lanes), bool),
    }
    if not same_step:
        rollout["valid"][1:] = ~(rollout["terminated"] | rollout["truncated"])[:-1]
    cut = np.argwhere(rollout["truncated"] & rollout["valid"])
    finals = [(int(t), int(lane), float(generator.normal())) for t, lane in cut] if same_step else []
    advantage, target = estimated(rollout, 0.97, 0.9, same_step=same_step, finals=finals)
    expected = plain(rollout, 0.97, 0.9, same_step, finals)
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target, expected + rollout["value"][:-1], rtol=1e-5, atol=1e-5)


def test_a_truncated_row_without_its_final_value_is_refused():
    rollout = {"reward": column(1, 1), "value": column(1, 2, 3), "truncated": column(0, 1)}
    with pytest.raises(ValueError, match="1 truncated rows have no final value"):
        estimated(rollout, 0.9, 0.9)


@pytest.mark.parametrize("final", [(2, 0, 1.0), (-1, 0, 1.0), (0, 1, 1.0), (0, -1, 1.0)])
def test_a_final_outside_the_rollout_is_refused(final):
    with pytest.raises(ValueError, match="does not have"):
        estimated({"reward": column(1, 1), "value": column(1, 2, 3)}, 0.9, 0.9, finals=[final])


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="value"):
        estimated({"reward": column(1, 1), "value": column(1, 2)}, 0.9, 0.9)
    with pytest.raises(ValueError, match="valid"):
        estimated({"reward": column(1, 1), "value": column(1, 2, 3), "valid": column(1)}, 0.9, 0.9)


def corrected(rollout, log_ratio, gamma, gae_lambda, rho_bar=1.0, c_bar=1.0, **others):
    return estimated(
        rollout, gamma, gae_lambda, correction=Correction(np.asarray(log_ratio, np.float32), rho_bar, c_bar), **others
    )


def test_a_correction_by_hand():
    # Row 1: ratio 1/2. delta = 2 + 1/2 * 8 - 4 = 2; advantage 1/2 * 2 = 1; target 4 + 1 = 5.
    # Row 0: ratio 2, cut to 1. delta = 1 + 1/2 * 4 - 2 = 1; advantage 1 + 1/2 * 1 = 1.5; target 2 + 1.5 = 3.5.
    rollout = {"reward": column(1, 2), "value": column(2, 4, 8)}
    advantage, target = corrected(rollout, np.log(column(2, 0.5)), 0.5, 1.0)
    np.testing.assert_allclose(advantage, column(1.5, 1), rtol=1e-6)
    np.testing.assert_allclose(target, column(3.5, 5), rtol=1e-6)


@pytest.mark.parametrize("same_step", [True, False])
def test_a_corrected_rollout_agrees_with_the_torch_function(same_step):
    generator, shape = np.random.default_rng(3), (40, 5)
    rollout = {
        "reward": generator.normal(size=shape),
        "value": generator.normal(size=(41, 5)),
        "terminated": generator.random(shape) < 0.1,
        "truncated": generator.random(shape) < 0.1,
        "valid": np.ones(shape, bool),
    }
    if not same_step:
        rollout["valid"][1:] = ~(rollout["terminated"] | rollout["truncated"])[:-1]
    rollout = {name: values.astype(bool if values.dtype == bool else np.float32) for name, values in rollout.items()}
    cut = np.argwhere(rollout["truncated"] & rollout["valid"])
    finals = [(int(t), int(lane), float(generator.normal())) for t, lane in cut] if same_step else []
    log_ratio = generator.normal(size=shape).astype(np.float32)
    bounds = {"rho_bar": 1.3, "c_bar": 0.9}
    advantage, target = corrected(rollout, log_ratio, 0.97, 0.9, **bounds, same_step=same_step, finals=finals)
    bootstrap = rollout["value"][1:].copy()
    for t, lane, value in finals:
        bootstrap[t, lane] = value
    by_lane = {name: torch.from_numpy(values.T.copy()) for name, values in {**rollout, "bootstrap": bootstrap}.items()}
    steps = Steps(*(by_lane[name] for name in Steps._fields))
    found = vtrace(
        steps._replace(valid=by_lane["valid"].float()),
        torch.from_numpy(log_ratio.T.copy()),
        by_lane["value"],
        gamma=0.97,
        gae_lambda=0.9,
        **bounds,
    )
    np.testing.assert_allclose(advantage, found.advantage.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target, found.target.T, rtol=1e-4, atol=1e-5)


def test_a_row_that_is_not_valid_may_hold_any_ratio():
    rollout = {"reward": column(1, 9, 3), "value": column(2, 4, 8, 2), "valid": column(1, 0, 1)}
    advantage, target = corrected(rollout, column(0, np.inf, 0), 0.5, 1.0)
    np.testing.assert_allclose(advantage, column(1, 0, -4))
    np.testing.assert_allclose(target, column(3, 4, 4))


def test_ratios_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="log_ratio does not have reward's shape"):
        corrected({"reward": column(1, 1), "value": column(1, 2, 3)}, column(0), 0.9, 0.9)
