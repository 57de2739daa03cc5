"""The native update against float64 autograd of PPO's and A2C's phases, and against itself: threads, calls, padding."""

import threading
from functools import partial

import numpy as np
import pytest
import torch

from penstock.algorithms.a2c import learn as a2c_learn
from penstock.algorithms.a2c.spec import A2CConfig
from penstock.algorithms.optimizer.fused import native_optimizer
from penstock.algorithms.ppo import learn
from penstock.algorithms.ppo.spec import PPOConfig
from penstock.kernels.level import levels
from penstock.kernels.update import ActorCriticLoss, ActorCriticUpdate, Moments
from penstock.ops.losses import mean_by
from penstock.policies import Categorical, Encoding, Gaussian
from penstock.policies.native import layout_of, supports_update
from penstock.torch_networks.policy import Policy
from tests.inference import reference
from tests.kernels.float64_steps import GRAPHS, ROWS, agree, batch, copied, exact, same_metrics, wide


def loss_of(config):
    return ActorCriticLoss(
        config.clip_param if isinstance(config, PPOConfig) else None,
        config.value_coef,
        config.entropy_coef,
        config.max_grad_norm,
        config.clip_apart,
        config.normalize_advantage,
        native_optimizer(config),
    )


def minibatches(count, size, seed=0):
    generator = np.random.default_rng(seed)
    indices = np.stack([generator.permutation(ROWS)[:size] for _ in range(count)])
    return indices, np.ones((count, size), np.float32)


def packed(graph, state, rows, config, level=None):
    update = ActorCriticUpdate(layout_of(graph), loss_of(config), ROWS, level, weighed="importance" in rows)
    update.pack(state, rows, 0, ROWS)
    return update


def updated(graph, state, rows, indices, weights, config, threads=1, level=None):
    update = packed(graph, state, rows, config, level)
    after = copied(state)
    update.run(after, indices, weights, config.lr, threads)
    return after, update.metrics()


def autograd(graph, state, rows, indices, weights, config):
    """The same in float64, by the algorithm's own pure functions."""
    policy = Policy(graph)
    module = learn if isinstance(config, PPOConfig) else a2c_learn
    tensors = exact(state)
    seen = []
    for chosen, weight in zip(indices, weights, strict=True):
        minibatch = {name: torch.tensor(wide(values[chosen])) for name, values in rows.items()}
        minibatch["weight"] = torch.tensor(wide(weight))
        minibatch |= learn.across_minibatch(config.normalize_advantage, minibatch, mean_by(minibatch["weight"]))
        minibatch["advantage"] = minibatch["advantage"] * minibatch.get("importance", 1.0)
        found = learn.gradients(graph, config, partial(module.loss, policy, config), tensors, minibatch, {})
        tensors = tensors | dict(learn.apply(graph, config, tensors, found.gradients))
        seen.append({name: float(value) for name, value in found.metrics.items()})
    means = {name: float(np.mean([metrics[name] for metrics in seen])) for name in seen[0]}
    return {name: values.numpy() for name, values in tensors.items()}, means


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", GRAPHS)
def test_agrees_with_float64_autograd(name, level):
    graph, config = GRAPHS[name], PPOConfig(lr=1e-3)
    state, rows = batch(graph)
    indices, weights = minibatches(4, 64)
    after, metrics = updated(graph, state, rows, indices, weights, config, level=level)
    expected, means = autograd(graph, state, rows, indices, weights, config)
    agree(after, expected, graph)
    assert after["adam_step"] == 14
    same_metrics(metrics, means)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("name", GRAPHS)
def test_rows_are_weighed_once_their_advantages_are_normalised(name, normalized, level):
    graph, config = GRAPHS[name], PPOConfig(lr=1e-3, normalize_advantage=normalized)
    state, rows = batch(graph)
    rows["importance"] = np.random.default_rng(3).uniform(0.0, 2.0, ROWS).astype(np.float32)
    indices, weights = minibatches(4, 64)
    after, metrics = updated(graph, state, rows, indices, weights, config, level=level)
    expected, means = autograd(graph, state, rows, indices, weights, config)
    agree(after, expected, graph)
    same_metrics(metrics, means)


def test_weights_of_importance_are_given_if_and_only_if_rows_are_weighed():
    graph = GRAPHS["categorical"]
    state, rows = batch(graph)
    update = ActorCriticUpdate(layout_of(graph), loss_of(PPOConfig()), ROWS, weighed=True)
    update._weighed = False
    with pytest.raises(ValueError, match="weights of importance if, and only if, the loss takes them"):
        update.pack(state, rows, 0, ROWS)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", GRAPHS)
def test_the_plain_gradient_and_rmsprop_agree_with_float64_autograd(name, level):
    graph, config = GRAPHS[name], A2CConfig(lr=1e-4, normalize_advantage=name == "categorical")
    state, rows = batch(graph)
    indices, weights = minibatches(4, 64)
    after, metrics = updated(graph, state, rows, indices, weights, config, level=level)
    expected, means = autograd(graph, state, rows, indices, weights, config)
    agree(after, expected, graph)
    assert after["adam_step"] == 10
    assert set(metrics) == {"policy_loss", "value_loss", "entropy", "grad_norm"}
    same_metrics(metrics, means)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"optimizer": "sgd", "momentum": 0.8, "lr": 0.01},
        {"optimizer": "rmsprop", "rmsprop_eps": 1e-4},
        {"optimizer": "muon", "weight_decay": 0.1, "momentum": 0.8},
    ],
    ids=lambda settings: settings["optimizer"],
)
def test_every_optimizer_agrees_with_float64_autograd(settings, level):
    """The logarithm of a deviation is no weight: adamw does not shrink it."""
    graph, config = GRAPHS["gaussian, six actions, normalised"], PPOConfig(**settings)
    state, rows = batch(graph)
    indices, weights = minibatches(4, 64)
    after, _ = updated(graph, state, rows, indices, weights, config, level=level)
    expected, _ = autograd(graph, state, rows, indices, weights, config)
    agree(after, expected, graph)
    two, _ = updated(graph, state, rows, indices, weights, config, threads=2, level=level)
    for name, values in after.items():
        np.testing.assert_array_equal(values, two[name])


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("sizes", [(5, 5), (4, 20, 3), (64, 17, 32), (16,)], ids=str)
def test_muon_steps_matrices_of_every_shape(sizes, level):
    """Square, wide and tall ones, layers of so few outputs that they are packed otherwise, and no matrix at all."""
    graph, config = reference.actor_critic(reference.FLAT, Gaussian(2), sizes), PPOConfig(optimizer="muon", lr=1e-2)
    state, rows = batch(graph)
    indices, weights = minibatches(4, 64)
    after, _ = updated(graph, state, rows, indices, weights, config, level=level)
    expected, _ = autograd(graph, state, rows, indices, weights, config)
    agree(after, expected, graph)


@pytest.mark.parametrize("config", [PPOConfig(adam_eps=0.0), A2CConfig(rmsprop_eps=0.0)])
def test_an_epsilon_that_padding_would_divide_zero_by_is_refused(config):
    with pytest.raises(ValueError, match="epsilon"):
        ActorCriticUpdate(layout_of(GRAPHS["gaussian"]), loss_of(config), ROWS)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", ["gaussian, six actions, normalised", "categorical", "activation gelu"])
def test_one_gradient_agrees_with_float64_autograd(name, level):
    # From moments at zero the first moment is a tenth of the clipped gradient: nothing hides it.
    graph, config = GRAPHS[name], PPOConfig(max_grad_norm=1e9)
    state, rows = batch(graph)
    for network in graph.networks:
        state[f"adam_m.{network.name}"][:] = 0.0
    indices, weights = minibatches(1, 100)
    after, _ = updated(graph, state, rows, indices, weights, config, level=level)
    expected, _ = autograd(graph, state, rows, indices, weights, config)
    for network in graph.networks:
        gradient = expected[f"adam_m.{network.name}"]
        np.testing.assert_allclose(
            after[f"adam_m.{network.name}"], gradient, rtol=1e-5, atol=1e-5 * np.abs(gradient).max()
        )


@pytest.mark.parametrize("size", [1, 3, 63, 65, 200, 400])
@pytest.mark.parametrize("hidden", [(), (1,), (5, 9), (100,), (16, 40, 24)])
def test_layers_and_minibatches_of_any_size(hidden, size):
    graph = reference.actor_critic((Encoding("obs", "flat", 11),), Categorical(6), hidden)
    # One row alone has no deviation: its advantage would be normalised to zero.
    config = PPOConfig(normalize_advantage=size > 1)
    state, rows = batch(graph)
    indices, weights = minibatches(2, size)
    after, _ = updated(graph, state, rows, indices, weights, config)
    expected, _ = autograd(graph, state, rows, indices, weights, config)
    agree(after, expected, graph)


@pytest.mark.parametrize(
    "changes",
    [
        {"clip_param": 0.05},
        {"value_coef": 2.0},
        {"entropy_coef": 0.3},
        {"max_grad_norm": 0.01},
        {"max_grad_norm": 1e6},
        {"adam_eps": 1e-2},
        {"normalize_advantage": False},
    ],
)
@pytest.mark.parametrize("name", ["gaussian, six actions, normalised", "categorical"])
def test_every_number_of_the_loss_counts_as_it_should(name, changes):
    graph, config = GRAPHS[name], PPOConfig(**changes)
    state, rows = batch(graph)
    indices, weights = minibatches(3, 64)
    after, metrics = updated(graph, state, rows, indices, weights, config)
    expected, means = autograd(graph, state, rows, indices, weights, config)
    agree(after, expected, graph)
    assert metrics["clip_fraction"] == pytest.approx(means["clip_fraction"])


def test_padding_does_not_count_and_may_hold_anything():
    graph, config = GRAPHS["gaussian"], PPOConfig()
    state, rows = batch(graph)
    indices, weights = minibatches(2, 50)
    whole, _ = updated(graph, state, rows, indices, weights, config)
    padded = np.concatenate([indices, np.full((2, 14), -7)], axis=1)
    heavy = np.concatenate([weights, np.zeros((2, 14), np.float32)], axis=1)
    rest, _ = updated(graph, state, rows, padded, heavy, config)
    for name, values in whole.items():
        np.testing.assert_array_equal(values, rest[name])


def test_a_minibatch_of_padding_alone_changes_nothing():
    graph, config = GRAPHS["gaussian"], PPOConfig()
    state, rows = batch(graph)
    indices, weights = minibatches(1, 8)
    after, metrics = updated(graph, state, rows, indices, weights * 0.0, config)
    for name, values in state.items():
        np.testing.assert_array_equal(after[name], values)
    assert metrics == {}


def test_unequal_weights_are_shares_of_the_mean():
    graph, config = GRAPHS["categorical"], PPOConfig()
    state, rows = batch(graph)
    indices, _ = minibatches(2, 30)
    weights = np.random.default_rng(0).uniform(0.0, 2.0, indices.shape).astype(np.float32)
    after, _ = updated(graph, state, rows, indices, weights, config)
    expected, _ = autograd(graph, state, rows, indices, weights, config)
    agree(after, expected, graph)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", ["gaussian, six actions, normalised", "categorical", "no hidden layer"])
def test_two_threads_give_the_same_bits(name, level):
    graph, config = GRAPHS[name], PPOConfig()
    state, rows = batch(graph)
    indices, weights = minibatches(20, 64)
    one, first = updated(graph, state, rows, indices, weights, config, threads=1, level=level)
    two, second = updated(graph, state, rows, indices, weights, config, threads=2, level=level)
    for array, values in one.items():
        np.testing.assert_array_equal(values, two[array])
    assert first == second


def test_how_minibatches_are_split_over_calls_does_not_matter():
    graph, config = GRAPHS["gaussian"], PPOConfig()
    state, rows = batch(graph)
    indices, weights = minibatches(9, 64)
    whole, _ = updated(graph, state, rows, indices, weights, config)
    update = ActorCriticUpdate(layout_of(graph), loss_of(config), ROWS)
    after = copied(state)
    for part in (slice(0, 1), slice(1, 6), slice(6, 9)):
        # Rows are packed piece by piece too.
        update.pack(state, rows, 0, 150)
        update.pack(state, rows, 150, ROWS - 150)
        update.run(after, indices[part], weights[part], config.lr)
    for name, values in whole.items():
        np.testing.assert_array_equal(values, after[name])


def test_metrics_are_means_since_the_last_call():
    graph, config = GRAPHS["gaussian"], PPOConfig()
    state, rows = batch(graph)
    indices, weights = minibatches(2, 64)
    update = ActorCriticUpdate(layout_of(graph), loss_of(config), ROWS)
    update.pack(state, rows, 0, ROWS)
    assert update.metrics() == {}
    singles = []
    for part in (slice(0, 1), slice(1, 2)):
        update.run(state, indices[part], weights[part], config.lr)
        singles.append(update.metrics())
    assert update.metrics() == {}
    assert singles[0]["value_loss"] != singles[1]["value_loss"]


def test_other_threads_run_meanwhile():
    graph, config = GRAPHS["gaussian"], PPOConfig()
    state, rows = batch(graph)
    indices, weights = minibatches(2000, 64)
    update = ActorCriticUpdate(layout_of(graph), loss_of(config), ROWS)
    update.pack(state, rows, 0, ROWS)
    worker = threading.Thread(target=update.run, args=(state, indices, weights, config.lr))
    worker.start()
    turns = 0
    while worker.is_alive():
        turns += 1
    worker.join()
    assert turns > 10


def test_a_row_that_is_not_there_is_refused():
    graph, config = GRAPHS["gaussian"], PPOConfig()
    state, rows = batch(graph)
    indices, weights = minibatches(1, 8)
    for row in (-1, ROWS):
        indices[0, 3] = row
        with pytest.raises(IndexError, match="not there"):
            updated(graph, state, rows, indices, weights, config)


def test_arrays_that_do_not_fit_are_refused():
    graph, config = GRAPHS["gaussian"], PPOConfig()
    state, rows = batch(graph)
    indices, weights = minibatches(1, 8)
    with pytest.raises(ValueError, match="length"):
        updated(graph, state | {"actor": state["actor"][:-1]}, rows, indices, weights, config)
    with pytest.raises(ValueError, match="shape"):
        updated(graph, state, rows | {"obs": rows["obs"][:-1]}, indices, weights, config)
    with pytest.raises(ValueError, match="weights"):
        updated(graph, state, rows, indices, weights[:, :-1].copy(), config)
    with pytest.raises(ValueError, match="threads"):
        updated(graph, state, rows, indices, weights, config, threads=3)


def test_what_it_does_not_train():
    assert not supports_update(reference.GRAPHS["gaussian, shared trunk"])
    assert not supports_update(reference.nature(Categorical(2)))
    with pytest.raises(ValueError, match="a network of its own"):
        ActorCriticUpdate(layout_of(reference.GRAPHS["gaussian, shared trunk"]), loss_of(PPOConfig()), ROWS)


@pytest.mark.parametrize("level", levels())
def test_every_row_that_is_named_counts_and_no_other(level):
    """A NaN row spoils minibatches that name it. Shown by naming all rows but one, and by spoiling each named row."""
    graph, config = GRAPHS["gaussian"], PPOConfig()
    state, rows = batch(graph)
    named = np.arange(3, 3 + 70).reshape(1, -1)

    def spoiled(row):
        changed = dict(rows, advantage=rows["advantage"].copy())
        changed["advantage"][row] = np.nan
        return updated(graph, state, changed, named, np.ones(named.shape, np.float32), config, level=level)[0]

    whole = updated(graph, state, rows, named, np.ones(named.shape, np.float32), config, level=level)[0]
    others = np.setdiff1d(np.arange(ROWS), named)
    assert np.array_equal(spoiled(others)[graph.actor.name], whole[graph.actor.name])
    for row in named[0]:
        assert np.isnan(spoiled(row)[graph.actor.name]).any(), row


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "muon"])
def test_gradients_and_step_in_two_calls_give_the_bits_of_one(optimizer):
    graph, config = GRAPHS["gaussian"], PPOConfig(lr=1e-3, optimizer=optimizer)
    state, rows = batch(graph)
    indices, weights = minibatches(1, 50)
    expected, metrics = updated(graph, state, rows, indices, weights, config)
    for threads in (1, 2):
        update, after = packed(graph, state, rows, config), copied(state)
        found, weight = update.gradients(after, indices[0], weights[0], None, threads)
        assert weight == 50.0
        update.descend(after, found, config.lr)
        assert update.metrics() == metrics
        for array, values in expected.items():
            np.testing.assert_array_equal(after[array], values)


def test_the_moments_of_the_whole_minibatch_make_the_gradients_of_shares_add_up():
    """Four fifths of the rows, and one fifth. A share of padding alone counts nothing."""
    graph, config = GRAPHS["categorical"], PPOConfig()
    state, rows = batch(graph)
    update = packed(graph, state, rows, config)
    (indices,), (weights,) = minibatches(1, 50)
    advantage = rows["advantage"][indices].astype(np.float64)
    moments = Moments(advantage.mean(), advantage.std())
    whole = copied(update.gradients(state, indices, weights, None)[0])
    mean = {name: np.zeros(values.size) for name, values in whole.items()}
    for part in (slice(0, 40), slice(40, 50)):
        found, weight = update.gradients(state, indices[part], weights[part], moments)
        for name, values in found.items():
            mean[name] += weight / 50.0 * values.astype(np.float64)
    for name, values in whole.items():
        assert np.linalg.norm(mean[name] - values) < 1e-5 * np.linalg.norm(values)
    update.metrics()
    found, weight = update.gradients(state, indices, weights * 0.0, moments)
    assert weight == 0.0
    assert not any(values.any() for values in found.values())
    # The names are there all the same: learners of one minibatch compare theirs.
    assert update.metrics()["policy_loss"] == 0.0
