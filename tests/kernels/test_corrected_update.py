"""The native update on lanes of older policies against float64 autograd of IMPALA's phase, and against itself."""

import numpy as np
import pytest
import torch

from penstock.algorithm import StreamShape
from penstock.algorithms.impala import learn
from penstock.algorithms.impala.fused import LaneUpdate, objective
from penstock.algorithms.impala.spec import IMPALAConfig
from penstock.algorithms.ppo.learn import apply as step
from penstock.kernels.level import levels
from penstock.kernels.pace import Pace
from penstock.kernels.update import CorrectedUpdate, LaneCorrection, Moments
from penstock.ops.losses import mean_by
from penstock.policies import Categorical, Encoding
from penstock.policies.native import layout_of
from penstock.torch_networks.policy import Policy
from tests.inference import reference
from tests.kernels.float64_steps import GRAPHS, agree, batch, copied, exact, same_metrics, wide

SLOTS, STEPS, LANES = 4, 24, 4
"""400 flat rows, as many as `batch` makes."""
NAMES = ["gaussian, six actions, normalised", "categorical", "activation gelu"]
TARGETS = {"bootstrap", "size"}


def rollouts(graph, seed=0):
    """A state in mid-run, and rows of older policies in which episodes end both ways and some rows are not valid."""
    state, rows = batch(graph, seed)
    generator = np.random.default_rng(seed + 1)
    count = len(rows["action"])
    rows["log_prob"] = (rows["log_prob"] + generator.normal(0.0, 0.5, count)).astype(np.float32)
    rows["reward"] = generator.normal(0.0, 2.0, count).astype(np.float32)
    rows["bootstrap"] = generator.normal(size=count).astype(np.float32)
    rows["size"] = generator.exponential(2.0, count).astype(np.float32)
    for name in ("terminated", "truncated"):
        rows[name] = generator.random(count) < 0.15
    valid = generator.random((SLOTS, STEPS + 1, LANES)) < 0.9
    valid[:, -1] = False
    rows["valid"] = valid.reshape(-1)
    del rows["advantage"], rows["target"]
    return state, rows


def minibatches(count, size, seed=0):
    """Row 0 of different lanes."""
    generator = np.random.default_rng(seed)
    firsts = (np.arange(SLOTS)[:, None] * (STEPS + 1) * LANES + np.arange(LANES)).ravel()
    indices = np.stack([generator.permutation(firsts)[:size] for _ in range(count)])
    return indices, np.ones((count, size), np.float32)


def lanes_of(config, steps=STEPS):
    limit = 1.0 if config.clip_reward else np.inf
    return LaneCorrection(
        steps, LANES, config.gamma, config.gae_lambda, config.rho_bar, config.c_bar, reward_limit=limit
    )


def packed(graph, state, rows, config, level=None):
    update = CorrectedUpdate(layout_of(graph), objective(config), lanes_of(config), len(rows["action"]), level)
    update.pack(state, rows, 0, len(rows["action"]))
    return update


def updated(graph, state, rows, indices, weights, config, threads=1, level=None):
    update = packed(graph, state, rows, config, level)
    after = copied(state)
    update.run(after, indices, weights, config.lr, threads)
    return after, update.metrics()


def autograd(graph, state, rows, firsts, weights, config):
    """One step in float64, by IMPALA's own pure functions."""
    tensors = exact(state)
    through = firsts[:, None] + np.arange(STEPS + 1) * LANES
    lanes = {
        name: torch.tensor(wide(values[through[:, :-1] if name in TARGETS else through]))
        for name, values in rows.items()
    }
    lanes["weight"] = torch.tensor(wide(weights))[:, None] * lanes["valid"][:, :-1]
    lanes |= learn.across_minibatch(config.normalize_advantage, lanes, mean_by(lanes["weight"]))
    found = learn.gradients(Policy(graph), config, tensors, lanes, {})
    tensors |= step(graph, config, tensors, found.gradients)
    metrics = {name: float(value) for name, value in found.metrics.items()}
    return {name: values.numpy() for name, values in tensors.items()}, metrics


def check(graph, config, size, level=None):
    """Each step begins from the state that the one before left: errors do not add up."""
    config = IMPALAConfig(**{"lr_schedule": "constant", **config})
    state, rows = rollouts(graph)
    indices, weights = minibatches(3, size)
    for chosen, weight in zip(indices, weights, strict=True):
        expected, means = autograd(graph, state, rows, chosen, weight, config)
        state, metrics = updated(graph, state, rows, chosen[None], weight[None], config, level=level)
        agree(state, expected, graph)
        assert state["adam_step"] == expected["adam_step"]
        same_metrics(metrics, means)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", GRAPHS)
def test_each_step_agrees_with_float64_autograd(name, level):
    check(GRAPHS[name], {}, 10, level)


@pytest.mark.parametrize(
    "changes",
    [
        {"rho_bar": 0.4},
        {"rho_bar": 3.0, "c_bar": 2.0},
        {"c_bar": 0.0},
        {"gae_lambda": 0.7},
        {"gamma": 0.5},
        {"clip_reward": True},
        {"normalize_advantage": False},
        {"value_coef": 2.0},
        {"entropy_coef": 0.3},
        {"max_grad_norm": 0.01},
        {"max_grad_norm": 1e6},
        {"adam_eps": 1e-5},
        {"optimizer": "rmsprop", "lr": 1e-4},
    ],
)
@pytest.mark.parametrize("name", NAMES[:2])
def test_every_number_counts_as_it_should(name, changes):
    check(GRAPHS[name], changes, 7)


@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize("hidden", [(), (5, 9), (100,)])
def test_layers_and_minibatches_of_any_size(hidden, size):
    check(reference.actor_critic((Encoding("obs", "flat", 11),), Categorical(6), hidden), {}, size)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", NAMES)
def test_two_threads_and_any_split_over_calls_give_the_same_bits(name, level):
    graph, config = GRAPHS[name], IMPALAConfig()
    state, rows = rollouts(graph)
    indices, weights = minibatches(12, 10)
    weights[3, 6:] = 0.0
    one, first = updated(graph, state, rows, indices, weights, config, threads=1, level=level)
    two, second = updated(graph, state, rows, indices, weights, config, threads=2, level=level)
    assert first == second
    update = CorrectedUpdate(layout_of(graph), objective(config), lanes_of(config), len(rows["action"]), level)
    update.pack(state, rows, 0, 150)
    update.pack(state, rows, 150, len(rows["action"]) - 150)
    split = copied(state)
    for part, threads in ((slice(0, 1), 2), (slice(1, 12), 1)):
        update.run(split, indices[part], weights[part], config.lr, threads)
    for array, values in one.items():
        np.testing.assert_array_equal(values, two[array])
        np.testing.assert_array_equal(values, split[array])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_and_step_in_two_calls_give_the_bits_of_one(name):
    graph, config = GRAPHS[name], IMPALAConfig()
    state, rows = rollouts(graph)
    indices, weights = minibatches(1, 10)
    weights[0, 6:] = 0.0
    expected, metrics = updated(graph, state, rows, indices, weights, config)
    for threads in (1, 2):
        update, after = packed(graph, state, rows, config), copied(state)
        found, weight = update.gradients(after, indices[0], weights[0], None, threads)
        through = indices[0, :6, None] + np.arange(STEPS) * LANES
        assert weight == rows["valid"][through].sum()
        update.descend(after, found, config.lr)
        assert update.metrics() == metrics
        for array, values in expected.items():
            np.testing.assert_array_equal(after[array], values)


def test_the_mean_of_the_gradients_of_shares_is_that_of_all_their_lanes():
    """Each share counts by its valid rows. One of padding alone has weight and gradient 0."""
    graph, config = GRAPHS["categorical"], IMPALAConfig()
    state, rows = rollouts(graph)
    update = packed(graph, state, rows, config)
    (indices,), (weights,) = minibatches(1, 12)
    size = Moments(0.0, 3.0)
    gradients, total = update.gradients(state, indices, weights, size)
    whole = copied(gradients)
    mean = {name: np.zeros(values.size) for name, values in whole.items()}
    for part in (slice(0, 3), slice(3, 12), slice(0, 1)):
        found, weight = update.gradients(state, indices[part], weights[part] * (part.stop > 1), size)
        for name, values in found.items():
            mean[name] += weight / total * values.astype(np.float64)
    assert weight == 0.0
    assert not any(values.any() for values in found.values())
    for name, values in whole.items():
        assert np.linalg.norm(mean[name] - values) < 1e-5 * np.linalg.norm(values)


def test_a_share_has_the_size_of_its_whole_minibatch():
    """The native update finds it by itself for one learner; for several, `across_minibatch` does, over their shares."""
    graph, config = GRAPHS["categorical"], IMPALAConfig(lr_schedule="constant")
    state, rows = rollouts(graph)
    shape = StreamShape(SLOTS, STEPS, LANES)
    update = LaneUpdate(packed(graph, state, rows, config), config, Pace(1), 1, shape)
    update.pack(state, rows, 0, len(rows["action"]))
    (indices,), (weights,) = minibatches(1, 12)
    expected, _ = update.gradients(state, indices, weights, None)
    expected = copied(expected)
    size = update.across_minibatch(indices, lambda values: float(values.mean()))
    through = indices[:, None] + np.arange(STEPS) * LANES
    sizes = rows["size"][through][rows["valid"][through]]
    assert size == pytest.approx((0.0, np.sqrt(np.mean(sizes.astype(np.float64) ** 2))))
    found, _ = update.gradients(state, indices, weights, size)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-7)


def test_padding_and_rows_that_are_not_valid_may_hold_anything():
    graph, config = GRAPHS["gaussian"], IMPALAConfig()
    state, rows = rollouts(graph)
    indices, weights = minibatches(2, 5)
    whole, _ = updated(graph, state, rows, indices, weights, config)
    padded = np.concatenate([indices, np.full((2, 3), -7)], axis=1)
    heavy = np.concatenate([weights, np.zeros((2, 3), np.float32)], axis=1)
    for name in ("action", "log_prob", "reward", "bootstrap", "size"):
        rows[name] = rows[name].copy()
        rows[name][~rows["valid"]] = np.nan
    rest, _ = updated(graph, state, rows, padded, heavy, config)
    for name, values in whole.items():
        np.testing.assert_array_equal(values, rest[name])


def test_a_ratio_that_is_not_a_number_is_seen():
    graph, config = GRAPHS["categorical"], IMPALAConfig()
    state, rows = rollouts(graph)
    indices, weights = minibatches(1, 16)
    rows["log_prob"][np.flatnonzero(rows["valid"])[17]] = np.nan
    after, metrics = updated(graph, state, rows, indices, weights, config)
    assert np.isnan(metrics["policy_loss"])
    assert np.isnan(after["actor"]).any()


def test_a_minibatch_of_padding_alone_changes_nothing():
    graph, config = GRAPHS["gaussian"], IMPALAConfig()
    state, rows = rollouts(graph)
    indices, weights = minibatches(1, 4)
    after, metrics = updated(graph, state, rows, indices, weights * 0.0, config)
    for name, values in state.items():
        np.testing.assert_array_equal(after[name], values)
    assert metrics == {}


def test_a_lane_that_ends_outside_the_rows_is_refused():
    graph, config = GRAPHS["gaussian"], IMPALAConfig()
    state, rows = rollouts(graph)
    indices, weights = minibatches(1, 4)
    for first in (-1, SLOTS * (STEPS + 1) * LANES - STEPS * LANES):
        indices[0, 2] = first
        with pytest.raises(IndexError, match="not there"):
            updated(graph, state, rows, indices, weights, config)


def test_other_losses_are_refused():
    graph, config = GRAPHS["gaussian"], IMPALAConfig()
    with pytest.raises(ValueError, match="plain policy gradient"):
        CorrectedUpdate(layout_of(graph), objective(config)._replace(clip_param=0.2), lanes_of(config), 400)
    with pytest.raises(ValueError, match="a lane has rows"):
        CorrectedUpdate(layout_of(graph), objective(config), lanes_of(config, steps=0), 400)
