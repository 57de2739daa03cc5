"""V-trace: numbers by hand, its limit without a lag, and a plain loop over the rows."""

import numpy as np
import pytest
import torch

from penstock.kernels.returns import gae
from penstock.ops.vtrace import Steps, chained, vtrace

LOG2 = float(np.log(2.0))
PLAIN = {"gamma": 0.5, "gae_lambda": 1.0, "rho_bar": 1.0, "c_bar": 1.0}


def lane(reward, value, log_ratio, *, terminated=(), truncated=(), bootstrap=(), invalid=()):
    """One lane in float64: its steps, ratios and values."""
    count = len(reward)

    def flags(at):
        return torch.tensor([[t in at for t in range(count)]])

    worth = torch.zeros(1, count, dtype=torch.float64)
    worth[0, list(truncated)] = torch.tensor(list(bootstrap), dtype=torch.float64)
    steps = Steps(
        torch.tensor([reward], dtype=torch.float64),
        flags(terminated),
        flags(truncated),
        worth,
        (~flags(invalid)).double(),
    )
    return steps, torch.tensor([log_ratio], dtype=torch.float64), torch.tensor([value], dtype=torch.float64)


def test_two_rows_by_hand():
    # Row 1: ratio 1/2, so rho = c = 1/2.   delta_1 = 1/2 (2 + 1/2 * 8 - 4) = 1; v_1 = 4 + 1 = 5
    #        advantage = 1/2 (2 + 1/2 * 8 - 4) = 1
    # Row 0: ratio 2, so rho = c = 1.       delta_0 = 1 + 1/2 * 4 - 2 = 1; v_0 = 2 + 1 + 1/2 * (5 - 4) = 3.5
    #        advantage = 1 + 1/2 * 5 - 2 = 1.5
    found = vtrace(*lane([1.0, 2.0], [2.0, 4.0, 8.0], [LOG2, -LOG2]), **PLAIN)
    assert found.target.tolist() == [[3.5, 5.0]]
    assert found.advantage.tolist() == [[1.5, 1.0]]
    assert found.rho.tolist() == [[1.0, 0.5]]


def test_the_bounds_are_two():
    # Ratios 4. rho = 2, c = 1.5.  delta_1 = 2 (2 + 1/2 * 8 - 4) = 4; v_1 = 8
    # delta_0 = 2 (1 + 1/2 * 4 - 2) = 2; v_0 = 2 + 2 + 1/2 * 1.5 * (8 - 4) = 7; advantage_0 = 2 (1 + 1/2 * 8 - 2) = 6
    found = vtrace(*lane([1.0, 2.0], [2.0, 4.0, 8.0], [2 * LOG2, 2 * LOG2]), **{**PLAIN, "rho_bar": 2.0, "c_bar": 1.5})
    np.testing.assert_allclose(found.target, [[7.0, 8.0]], rtol=1e-12)
    np.testing.assert_allclose(found.advantage, [[6.0, 4.0]], rtol=1e-12)


def test_lambda_shortens_the_trace_and_the_advantage_alike():
    # As the first test with lambda = 1/2: v_0 = 2 + 1 + 1/2 * 1/2 * (5 - 4) = 3.25
    # advantage_0 = 1 + 1/2 (4 + 1/2 * (5 - 4)) - 2 = 1.25
    found = vtrace(*lane([1.0, 2.0], [2.0, 4.0, 8.0], [LOG2, -LOG2]), **{**PLAIN, "gae_lambda": 0.5})
    assert found.target.tolist() == [[3.25, 5.0]]
    assert found.advantage.tolist() == [[1.25, 1.0]]


def test_a_terminated_row_is_followed_by_nothing():
    # delta_0 = 1 - 2 = -1, and the sum ends: v_0 = 1. Row 1 as if it were alone: v_1 = 4 + 2 + 4 - 4 = 6.
    found = vtrace(*lane([1.0, 2.0], [2.0, 4.0, 8.0], [0.0, 0.0], terminated=[0]), **PLAIN)
    assert found.target.tolist() == [[1.0, 6.0]]
    assert found.advantage.tolist() == [[-1.0, 2.0]]


def test_a_truncated_row_is_followed_by_its_last_observation():
    # The last observation is worth 10: delta_0 = 1 + 1/2 * 10 - 2 = 4.
    found = vtrace(*lane([1.0, 2.0], [2.0, 4.0, 8.0], [0.0, 0.0], truncated=[0], bootstrap=[10.0]), **PLAIN)
    assert found.target.tolist() == [[6.0, 6.0]]
    assert found.advantage.tolist() == [[4.0, 2.0]]


def test_terminated_wins_over_truncated():
    rows = lane([1.0, 2.0], [2.0, 4.0, 8.0], [0.0, 0.0], terminated=[0], truncated=[0], bootstrap=[10.0])
    assert vtrace(*rows, **PLAIN).target.tolist() == [[1.0, 6.0]]


def test_a_row_that_is_not_valid_ends_the_sum_and_is_only_a_bootstrap():
    # Row 1 is not valid. Row 0 bootstraps from its value: delta_0 = 1 + 1/2 * 4 - 2 = 1.
    # Row 2: delta_2 = 3 + 1/2 * 2 - 8 = -4.
    found = vtrace(*lane([1.0, 99.0, 3.0], [2.0, 4.0, 8.0, 2.0], [0.0, 5.0, 0.0], invalid=[1]), **PLAIN)
    assert found.target.tolist() == [[3.0, 4.0, 4.0]]
    assert found.advantage.tolist() == [[1.0, 0.0, -4.0]]
    assert found.rho.tolist() == [[1.0, 0.0, 1.0]]


def test_ratios_beyond_all_bounds_give_finite_numbers():
    found = vtrace(*lane([1.0, 2.0], [2.0, 4.0, 8.0], [5_000.0, -5_000.0]), **PLAIN)
    # rho_1 = c_1 = 0: v_1 = 4. Row 0 has ratio infinity, cut to 1: v_0 = 2 + (1 + 2 - 2) + 1/2 * 0 = 3.
    assert found.target.tolist() == [[3.0, 4.0]]


def random_lanes(lanes, count, seed=0):
    generator = np.random.default_rng(seed)
    terminated = generator.random((lanes, count)) < 0.1
    truncated = (generator.random((lanes, count)) < 0.1) & ~terminated
    valid = np.ones((lanes, count))
    valid[:, 1:][(terminated | truncated)[:, :-1] & (generator.random((lanes, count - 1)) < 0.5)] = 0.0
    reward, bootstrap = generator.normal(size=(2, lanes, count))
    steps = Steps(*map(torch.from_numpy, (reward, terminated, truncated, bootstrap, valid)))
    log_ratio = torch.from_numpy(generator.normal(size=(lanes, count)))
    return steps, log_ratio, torch.from_numpy(generator.normal(size=(lanes, count + 1)))


def looped(steps, log_ratio, value, *, gamma, gae_lambda, rho_bar, c_bar):
    """The recursion of remark 1 of the paper, one row at a time."""
    reward, terminated, truncated, bootstrap, valid = (np.asarray(part) for part in steps)
    value, ratio = np.asarray(value), np.exp(np.asarray(log_ratio))
    target, advantage = np.zeros(reward.shape), np.zeros(reward.shape)
    for row in range(reward.shape[0]):
        for t in reversed(range(reward.shape[1])):
            last = t + 1 == reward.shape[1]
            later = 0.0 if last else target[row, t + 1] - value[row, t + 1]
            follows = value[row, t + 1]
            if truncated[row, t]:
                follows, later = bootstrap[row, t], 0.0
            if terminated[row, t]:
                follows, later = 0.0, 0.0
            target[row, t] = value[row, t]
            if not valid[row, t]:
                continue
            rho, c = min(rho_bar, ratio[row, t]), gae_lambda * min(c_bar, ratio[row, t])
            delta = rho * (reward[row, t] + gamma * follows - value[row, t])
            target[row, t] += delta + gamma * c * later
            advantage[row, t] = rho * (reward[row, t] + gamma * (follows + gae_lambda * later) - value[row, t])
    return target, advantage


@pytest.mark.parametrize("count", [1, 2, 7, 20, 33])
@pytest.mark.parametrize(("rho_bar", "c_bar", "gae_lambda"), [(1.0, 1.0, 1.0), (2.0, 0.7, 0.9)])
def test_a_plain_loop_gives_the_same(count, rho_bar, c_bar, gae_lambda):
    rows = random_lanes(5, count)
    settings = {"gamma": 0.97, "gae_lambda": gae_lambda, "rho_bar": rho_bar, "c_bar": c_bar}
    target, advantage = looped(*rows, **settings)
    found = vtrace(*rows, **settings)
    np.testing.assert_allclose(found.target, target, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.advantage, advantage, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("gae_lambda", [1.0, 0.9])
def test_without_a_lag_it_is_generalised_advantage_estimation(gae_lambda):
    """With pi = mu and lambda 1 the targets are n-step returns; with any lambda they are those of the native kernel."""
    steps, log_ratio, value = random_lanes(6, 40)
    t, at = np.nonzero(np.asarray(steps.truncated).T)
    narrow = {
        name: np.ascontiguousarray(np.asarray(part).T.astype(kind))
        for name, part, kind in (
            ("reward", steps.reward, np.float32),
            ("value", value, np.float32),
            ("terminated", steps.terminated, bool),
            ("truncated", steps.truncated, bool),
            ("valid", steps.valid, bool),
        )
    }
    advantage, target = np.empty((40, 6), np.float32), np.empty((40, 6), np.float32)
    finals = np.ascontiguousarray(np.asarray(steps.bootstrap).T[t, at].astype(np.float32))
    gae(
        **narrow,
        final_count=len(t),
        final_t=t,
        final_lane=at,
        final_value=finals,
        same_step=True,
        gamma=0.97,
        gae_lambda=gae_lambda,
        advantage=advantage,
        target=target,
    )
    found = vtrace(steps, torch.zeros_like(log_ratio), value, gamma=0.97, gae_lambda=gae_lambda, rho_bar=1.0, c_bar=1.0)
    np.testing.assert_allclose(found.advantage.T, advantage, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.target.T, target, rtol=1e-4, atol=1e-5)


def test_chained_sums_by_hand():
    # y_2 = 4; y_1 = 2 + 1/2 * 4 = 4; y_0 = 1 + 3 * 4 = 13
    rows = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[3.0, 0.5, 7.0]])
    assert chained(*rows).tolist() == [[13.0, 4.0, 4.0]]


def test_shapes_that_do_not_fit_are_refused():
    steps, log_ratio, value = random_lanes(2, 5)
    with pytest.raises(ValueError, match=r"values of shape \(2, 5\) do not fit ratios of shape \(2, 5\)"):
        vtrace(steps, log_ratio, value[:, 1:], **PLAIN)
