"""SAC against arithmetic by hand and finite differences."""

import math

import pytest
import torch

from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.learn import Networks
from penstock.algorithms.sac import learn, spec
from penstock.torch_networks.forward import Ensemble
from penstock.torch_networks.policy import Policy
from tests.algorithms.replay_rows import (
    CONTINUOUS,
    MIXED,
    constant,
    minibatch_of,
    noise_of,
    slope,
    state_of,
)

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def parts(spaces=CONTINUOUS, **settings):
    config = spec.SACConfig(hidden_sizes=(5, 4), **settings)
    graph = spec.policy_graph(spaces, config)
    return config, Policy(graph), critic_network(graph, config), learn.build(spaces, config)


def test_the_critics_target_by_hand():
    config, policy, critic, _ = parts()
    # mean (0.5, 0), sigma (1, 2); noise (1, -0.5): u = (1.5, -1); critics' targets say 3 and 7, temperature 0.5.
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    state["actor"] = constant(policy.graph.actor, 0.5, 0.0, 0.0, math.log(2.0))
    state["target.critic"] = torch.cat((constant(critic, 3.0), constant(critic, 7.0)))
    state["log_alpha"] = torch.tensor([math.log(0.5)], dtype=torch.float64)
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 2)
    rows |= {"reward": torch.tensor([1.0, 2.0]).double(), "discount": torch.tensor([0.9, 0.0]).double()}
    noise = torch.tensor([[1.0, -0.5]] * 2, dtype=torch.float64)
    found = learn.critic_target(Networks(policy, Ensemble(critic, 2, policy.graph.encoding)), state, rows, noise)
    normal = -0.5 * 1.0 - HALF_LOG_TWO_PI - 0.5 * 0.25 - math.log(2.0) - HALF_LOG_TWO_PI
    log_prob = normal - math.log(1.0 - math.tanh(1.5) ** 2) - math.log(1.0 - math.tanh(-1.0) ** 2)
    # The second row is terminated, so its target is its reward.
    assert found.tolist() == pytest.approx([1.0 + 0.9 * (3.0 - 0.5 * log_prob), 2.0])


def test_the_critics_loss_by_hand():
    config, policy, critic, _ = parts()
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    state["critic"] = torch.cat((constant(critic, 3.0), constant(critic, 6.0)))
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 3)
    rows["weight"] = torch.tensor([1.0, 1.0, 0.0]).double()
    loss, metrics = learn.critic_loss(
        Networks(policy, Ensemble(critic, 2, policy.graph.encoding)),
        state,
        rows,
        torch.tensor([2.0, 5.0, 99.0]).double(),
    )
    # 1/2 mean of (1, 4), and of (16, 1); the third row is padding.
    assert float(loss) == pytest.approx(0.5 * 2.5 + 0.5 * 8.5)
    assert float(metrics["mean_value"]) == pytest.approx(4.5)


def test_the_actors_loss_and_the_temperature_by_hand():
    config, policy, critic, built = parts(target_entropy=-1.5)
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    state["actor"] = constant(policy.graph.actor, 0.0, 0.0, 0.0, 0.0)
    state["critic"] = torch.cat((constant(critic, 3.0), constant(critic, 7.0)))
    state["log_alpha"] = torch.tensor([math.log(0.2)], dtype=torch.float64)
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 4)
    phase = built.phases[1]
    noise = {"action": torch.zeros(4, 2, dtype=torch.float64)}
    found = phase.gradients(state, rows, noise)
    # At the mode tanh has slope 1: log pi = -log(2 pi).
    log_prob = -2.0 * HALF_LOG_TWO_PI
    assert float(found.metrics["policy_loss"]) == pytest.approx(0.2 * log_prob - 3.0)
    assert float(found.metrics["entropy"]) == pytest.approx(-log_prob)
    assert float(found.metrics["temperature"]) == pytest.approx(0.2)
    # An entropy above the target lowers the temperature.
    assert found.gradients["log_alpha"].tolist() == pytest.approx([-log_prob + 1.5])
    changed = phase.apply(state, found.gradients)
    # Adam's first step is the learning rate.
    assert float(changed["log_alpha"] - state["log_alpha"]) == pytest.approx(-config.temperature_lr, rel=1e-5)
    assert int(changed["adam_step.actor"]) == int(changed["adam_step.log_alpha"]) == 1


def test_the_wanted_entropy_is_minus_the_size_of_an_action():
    config, _, _, built = parts()
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, spec.SACConfig()), 4)
    found = built.phases[1].gradients(state, rows, noise_of(built.phases[1], 4))
    assert float(found.gradients["log_alpha"]) == pytest.approx(float(found.metrics["entropy"]) + 2.0)


@pytest.mark.parametrize("temperature", [0.3, 0.0])
def test_a_fixed_temperature_stays(temperature):
    config, _, _, built = parts(temperature=temperature)
    state = state_of(spec.init_state(CONTINUOUS, config, 1), spread=0.0)
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 4)
    found = built.phases[1].gradients(state, rows, noise_of(built.phases[1], 4))
    assert set(found.gradients) == {"actor"}
    assert "log_alpha" not in built.phases[1].apply(state, found.gradients)
    assert float(found.metrics["temperature"]) == pytest.approx(temperature, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("spaces", [CONTINUOUS, MIXED])
@pytest.mark.parametrize("critics", [1, 3])
def test_gradients_agree_with_finite_differences(spaces, critics):
    config, policy, critic, built = parts(spaces, critics=critics)
    of = Networks(policy, Ensemble(critic, critics, policy.graph.encoding))
    state = state_of(spec.init_state(spaces, config, 1))
    rows = minibatch_of(spaces, spec.spec(spaces, config), 8)
    first, second = built.phases
    noise = noise_of(first, 8)
    target = learn.critic_target(of, state, rows, noise["next_action"])
    found = first.gradients(state, rows, noise)
    by_difference, by_gradient = slope(
        lambda at: learn.critic_loss(of, at, rows, target)[0], state, "critic", found.gradients["critic"]
    )
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)
    noise = noise_of(second, 8)
    found = second.gradients(state, rows, noise)
    by_difference, by_gradient = slope(
        lambda at: learn.actor_loss(of, config, at, rows, noise["action"])[0],
        state,
        "actor",
        found.gradients["actor"],
    )
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)


def test_targets_follow_the_new_critics():
    config, _, _, built = parts(tau=0.25)
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 8)
    phase = built.phases[0]
    changed = phase.apply(state, phase.gradients(state, rows, noise_of(phase, 8)).gradients)
    expected = 0.75 * state["target.critic"] + 0.25 * changed["critic"]
    torch.testing.assert_close(changed["target.critic"], expected)
    assert not torch.equal(changed["critic"], state["critic"])
