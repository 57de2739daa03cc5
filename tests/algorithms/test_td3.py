"""TD3 and DDPG against arithmetic by hand and finite differences."""

import math

import pytest
import torch

from penstock.algorithms.ddpg import learn as ddpg_learn
from penstock.algorithms.ddpg import spec as ddpg_spec
from penstock.algorithms.off_policy.critics import critic_network
from penstock.algorithms.off_policy.learn import Networks
from penstock.algorithms.td3 import learn, spec
from penstock.policies.exploration import Constant
from penstock.torch_networks.forward import Ensemble
from penstock.torch_networks.policy import Policy
from tests.algorithms.replay_rows import CONTINUOUS, constant, minibatch_of, noise_of, slope, state_of


def parts(**settings):
    config = spec.TD3Config(**{"hidden_sizes": (5, 4)} | settings)
    graph = spec.policy_graph(CONTINUOUS, config)
    return config, Policy(graph), critic_network(graph, config), learn.build(CONTINUOUS, config)


def rows_of(config, size):
    return minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), size)


def test_the_target_judges_a_smoothed_action():
    config, policy, critic, _ = parts(smoothing=0.2, smoothing_clip=0.5, hidden_sizes=(1,), activation="relu")
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    state["target.actor"] = constant(policy.graph.actor, math.atanh(0.9), 0.0)
    # One hidden unit has the first element of the action plus 2; the value is 10 times that.
    flat = torch.zeros(critic.num_parameters, dtype=torch.float64)
    flat[3], flat[5], flat[6] = 1.0, 2.0, 10.0
    state["target.critic"] = torch.cat((flat, constant(critic, 40.0)))
    rows = rows_of(config, 3)
    rows |= {"reward": torch.ones(3).double(), "discount": torch.tensor([0.5, 0.5, 0.0]).double()}
    noise = torch.tensor([[-1.0, 0.0], [-9.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    found = learn.critic_target(
        Networks(policy, Ensemble(critic, 2, policy.graph.encoding)), config, state, rows, noise
    )
    # Actions 0.9 - 0.2 and 0.9 - 0.5 (clipped); values 27 and 24, both below 40.
    assert found.tolist() == pytest.approx([1.0 + 0.5 * 27.0, 1.0 + 0.5 * 24.0, 1.0])
    # Noise the other way ends at the bound: 30.
    found = learn.critic_target(
        Networks(policy, Ensemble(critic, 2, policy.graph.encoding)), config, state, rows, -noise
    )
    assert float(found[0]) == pytest.approx(1.0 + 0.5 * 30.0)


def test_losses_by_hand():
    config, policy, critic, _ = parts()
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    state["critic"] = torch.cat((constant(critic, 3.0), constant(critic, 6.0)))
    rows = rows_of(config, 3)
    rows["weight"] = torch.tensor([1.0, 1.0, 0.0]).double()
    of = Networks(policy, Ensemble(critic, 2, policy.graph.encoding))
    loss, _ = learn.critic_loss(of, state, rows, torch.tensor([2.0, 5.0, 99.0]).double())
    # Mean of (1, 4), and of (16, 1).
    assert float(loss) == pytest.approx(2.5 + 8.5)
    # The actor's loss uses only the first critic.
    assert float(learn.actor_loss(of, config, state, rows)[0]) == pytest.approx(-3.0)


def test_the_policy_is_held_to_demonstrations_by_the_size_of_their_values():
    config, policy, critic, _ = parts(imitation=0.5)
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    state["critic"] = torch.cat((constant(critic, -3.0), constant(critic, 6.0)))
    state["actor"] = constant(policy.graph.actor, math.atanh(0.5), 0.0)
    rows = rows_of(config, 3)
    rows["action"] = torch.tensor([[0.1, 0.2], [0.9, -0.4], [-1.0, 1.0]]).double()
    rows["demonstrated"] = torch.tensor([0.0, 1.0, 1.0]).double()
    rows["weight"] = torch.tensor([1.0, 1.0, 0.0]).double()
    of = Networks(policy, Ensemble(critic, 2, policy.graph.encoding))
    # Of the second row alone: 0.5 * |-3| * (0.4^2 + 0.4^2) / 2 = 0.24, and half of it is the mean of two rows.
    assert float(learn.actor_loss(of, config, state, rows)[0]) == pytest.approx(3.0 + 0.12)


def test_the_gradient_of_imitation_agrees_with_finite_differences():
    config, policy, critic, built = parts(imitation=0.4)
    of = Networks(policy, Ensemble(critic, 2, policy.graph.encoding))
    state, rows = state_of(spec.init_state(CONTINUOUS, config, 1)), rows_of(config, 8)
    # No gradient goes through the size of a value, so it must not change with the action here.
    state["critic"] = torch.cat((constant(critic, -3.0), constant(critic, 6.0)))
    gradient = built.phases[1].gradients(state, rows, {}).gradients["actor"]
    by_difference, by_gradient = slope(lambda at: learn.actor_loss(of, config, at, rows)[0], state, "actor", gradient)
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)
    assert by_gradient != 0.0


def test_gradients_agree_with_finite_differences():
    config, policy, critic, built = parts()
    of = Networks(policy, Ensemble(critic, 2, policy.graph.encoding))
    state, rows = state_of(spec.init_state(CONTINUOUS, config, 1)), rows_of(config, 8)
    first, second = built.phases
    noise = noise_of(first, 8)
    target = learn.critic_target(of, config, state, rows, noise["smoothing"])
    by_difference, by_gradient = slope(
        lambda at: learn.critic_loss(of, at, rows, target)[0],
        state,
        "critic",
        first.gradients(state, rows, noise).gradients["critic"],
    )
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)
    by_difference, by_gradient = slope(
        lambda at: learn.actor_loss(of, config, at, rows)[0],
        state,
        "actor",
        second.gradients(state, rows, {}).gradients["actor"],
    )
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)


def test_the_delayed_phase_moves_every_target():
    config, _, _, built = parts(policy_delay=3, tau=0.25)
    assert [phase.every for phase in built.phases] == [1, 3]
    state, rows = state_of(spec.init_state(CONTINUOUS, config, 1)), rows_of(config, 8)
    first, second = built.phases
    changed = first.apply(state, first.gradients(state, rows, noise_of(first, 8)).gradients)
    assert set(changed) == {"critic", "adam_m.critic", "adam_v.critic", "adam_step.critic"}
    state |= changed
    changed = second.apply(state, second.gradients(state, rows, {}).gradients)
    torch.testing.assert_close(changed["target.actor"], 0.75 * state["target.actor"] + 0.25 * changed["actor"])
    torch.testing.assert_close(changed["target.critic"], 0.75 * state["target.critic"] + 0.25 * state["critic"])


def test_exploration_is_a_constant():
    found = spec.spec(CONTINUOUS, spec.TD3Config(exploration=0.3))
    assert found.explore == Constant(0.3)
    assert "gradient_steps" in {part.name for part in found.state}


def test_ddpg_is_td3_with_one_critic_no_delay_and_no_smoothing():
    both = {
        "hidden_sizes": (5, 4),
        "mini_batch_size": 8,
        "lr": 2e-3,
        "critic_lr": 4e-3,
        "tau": 0.01,
        "exploration": 0.2,
    }
    config = ddpg_spec.DDPGConfig(**both)
    same = spec.TD3Config(**both, critics=1, policy_delay=1, smoothing=0.0)
    assert ddpg_spec.spec(CONTINUOUS, config) == spec.spec(CONTINUOUS, same)
    one, other = ddpg_learn.build(CONTINUOUS, config), learn.build(CONTINUOUS, same)
    state, rows = state_of(ddpg_spec.init_state(CONTINUOUS, config, 1)), rows_of(same, 8)
    for ours, theirs in zip(one.phases, other.phases, strict=True):
        noise = noise_of(ours, 8)
        found, expected = ours.gradients(state, rows, noise), theirs.gradients(state, rows, noise)
        assert all(torch.equal(found.gradients[name], expected.gradients[name]) for name in expected.gradients)
        # Nothing is smoothed: the noise does not matter.
        assert all(
            torch.equal(
                ours.gradients(state, rows, {n: 9 * v for n, v in noise.items()}).gradients[name], found.gradients[name]
            )
            for name in found.gradients
        )
