"""The layers and the dropout of critics, by hand."""

import dataclasses
import math

import pytest
import torch

from penstock.algorithm_lookup import find_algorithm, load_functions
from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.learn import Networks
from penstock.algorithms.sac import learn, spec
from penstock.errors import ConfigError
from penstock.policies import Activation, Dropout, LayerNorm, Linear
from penstock.registry import load
from penstock.torch_networks.forward import Ensemble
from penstock.torch_networks.policy import Policy
from tests.algorithms.replay_rows import CONTINUOUS, constant, minibatch_of, noise_of, slope, state_of

REGULARISED = {"hidden_sizes": (5, 4), "critic_dropout": 0.25, "critic_layer_norm": True}


def parts(**settings):
    config = spec.SACConfig(**settings)
    graph = spec.policy_graph(CONTINUOUS, config)
    return config, Policy(graph), critic_network(graph, config)


def test_dropout_and_norm_stand_between_weights_and_activation_and_in_the_critics_only():
    _, policy, critic = parts(**REGULARISED)
    kinds = [type(layer) for layer in critic.layers]
    assert kinds == [*[Linear, Dropout, LayerNorm, Activation] * 2, Linear]
    assert [type(layer) for layer in policy.graph.actor.layers] == [*[Linear, Activation] * 2, Linear]
    plain = parts(hidden_sizes=(5, 4))[2]
    assert [type(layer) for layer in plain.layers] == [*[Linear, Activation] * 2, Linear]


def test_a_norm_that_is_there_already_is_refused():
    with pytest.raises(ConfigError, match="--critic_layer_norm has no effect"):
        parts(layer_norm=True, critic_layer_norm=True)


def test_each_critic_drops_outputs_of_its_own():
    config, policy, critic = parts(hidden_sizes=(2,), critic_dropout=0.25)
    # Five inputs, two hidden units with the biases 3 and 6, a value that adds them.
    flat = torch.zeros(critic.num_parameters, dtype=torch.float64)
    flat[10], flat[11], flat[12], flat[13] = 3.0, 6.0, 1.0, 1.0
    of = Networks(policy, Ensemble(critic, 2, policy.graph.encoding))
    assert [(name, noise.shape, noise.distribution) for name, noise in of.dropout("value")] == [
        ("value.0", (2, 2), "uniform")
    ]
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 2)
    # Row 0: critic 0 drops its first unit, critic 1 none. Row 1: critic 0 drops none, critic 1 both.
    noise = torch.tensor([[[0.2, 0.3], [0.25, 0.9]], [[0.5, 0.5], [0.1, 0.24]]], dtype=torch.float64)
    state = state_of(spec.init_state(CONTINUOUS, config, 1)) | {"critic": torch.cat((flat, flat))}
    found = of.values(state, "critic", rows, rows["action"], [noise]).squeeze(2)
    assert found[0].tolist() == pytest.approx([6.0 / 0.75, 9.0 / 0.75])
    assert found[1].tolist() == pytest.approx([9.0 / 0.75, 0.0])
    # Without noise, as a value is shown to a user, nothing is dropped.
    assert of.values(state, "critic", rows, rows["action"]).unique().tolist() == pytest.approx([9.0])


def test_the_target_is_the_smallest_value_of_target_critics_that_drop_too():
    config, policy, critic = parts(hidden_sizes=(1,), critic_dropout=0.5)
    built = learn.build(CONTINUOUS, config)
    flat = torch.zeros(critic.num_parameters, dtype=torch.float64)
    # One hidden unit with the bias 2, a value that adds 10 to it.
    flat[5], flat[6], flat[7] = 2.0, 1.0, 10.0
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    state |= {"target.critic": torch.cat((flat, flat)), "log_alpha": torch.tensor([-1000.0]).double()}
    state["actor"] = constant(policy.graph.actor, 0.0, 0.0, 0.0, 0.0)
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 2)
    rows |= {"reward": torch.ones(2).double(), "discount": torch.full((2,), 0.5).double()}
    first = built.phases[0]
    assert [name for name, _ in first.noise] == ["next_action", "next_value.0", "value.0"]
    noise = torch.tensor([[[0.6], [0.4]], [[0.6], [0.6]]], dtype=torch.float64)
    of = Networks(policy, Ensemble(critic, 2, policy.graph.encoding))
    found = learn.critic_target(of, state, rows, torch.zeros(2, 2, dtype=torch.float64), [noise])
    # Row 0: values 14 and, dropped, 10. Row 1: both 14.
    assert found.tolist() == pytest.approx([1.0 + 0.5 * 10.0, 1.0 + 0.5 * 14.0])


def uniform_noise(phase, size):
    found = noise_of(phase, size)
    sources = {part.distribution for _, part in phase.noise}
    assert sources == {"normal", "uniform"} or sources == {"uniform"}
    return {
        name: 0.5 * (1.0 + torch.erf(found[name] / math.sqrt(2.0))) if part.distribution == "uniform" else found[name]
        for name, part in phase.noise
    }


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg", "dsac", "dsact"])
def test_every_actor_critic_learns_with_them(name):
    package = find_algorithm(name)
    config = package.config(**REGULARISED, mini_batch_size=8)
    found, built = load(package.spec)(CONTINUOUS, config), load_functions(package.learn)(CONTINUOUS, config)
    assert not load_functions(package.supports)(found.policy, config)
    state, rows = state_of(load(package.initial)(CONTINUOUS, config, 1)), minibatch_of(CONTINUOUS, found, 8)
    for phase in built.phases:
        noise = uniform_noise(phase, 8)
        dropped = [key for key in noise if "value" in key]
        gradients = phase.gradients(state, rows, noise).gradients
        kept = phase.gradients(state, rows, noise | {key: torch.ones_like(noise[key]) for key in dropped}).gradients
        assert dropped
        assert all(not torch.equal(gradients[key], kept[key]) for key in gradients.keys() & {"actor", "critic"})
        state |= phase.apply(state, gradients)
    assert all(torch.isfinite(values).all() for values in state.values())


def test_gradients_through_dropout_and_norm_agree_with_finite_differences():
    config, policy, critic = parts(**REGULARISED)
    built = learn.build(CONTINUOUS, config)
    of = Networks(policy, Ensemble(critic, 2, policy.graph.encoding))
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 8)
    first, second = built.phases
    noise = uniform_noise(first, 8)
    target = learn.critic_target(of, state, rows, noise["next_action"], of.dropped(noise, "next_value"))
    by_difference, by_gradient = slope(
        lambda at: learn.critic_loss(of, at, rows, target, of.dropped(noise, "value"))[0],
        state,
        "critic",
        first.gradients(state, rows, noise).gradients["critic"],
    )
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)
    noise = uniform_noise(second, 8)
    by_difference, by_gradient = slope(
        lambda at: learn.actor_loss(of, config, at, rows, noise["action"], of.dropped(noise, "value"))[0],
        state,
        "actor",
        second.gradients(state, rows, noise).gradients["actor"],
    )
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)


def test_a_policy_with_memory_has_such_critics_too():
    config = spec.SACConfig(model="gru", learned_steps=3, burn_in=1, memory_size=4, **REGULARISED)
    built = learn.build(CONTINUOUS, config)
    assert dict(built.phases[0].noise)["next_value.1"].shape == (4, 2, 4)
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 2)
    noise = uniform_noise(built.phases[0], 2)
    found = built.phases[0].gradients(state, rows, noise).gradients["critic"]
    kept = noise | {key: torch.ones_like(value) for key, value in noise.items() if "value" in key}
    assert not torch.equal(found, built.phases[0].gradients(state, rows, kept).gradients["critic"])


def test_the_actor_of_sac_may_step_less_often_than_its_critics():
    built = learn.build(CONTINUOUS, spec.SACConfig(hidden_sizes=(5,), policy_delay=20))
    assert [phase.every for phase in built.phases] == [1, 20]
    memory = learn.build(CONTINUOUS, dataclasses.replace(spec.SACConfig(model="lstm"), policy_delay=3))
    assert [phase.every for phase in memory.phases] == [1, 3]
