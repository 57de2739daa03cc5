"""DSAC and DSAC-T against arithmetic by hand."""

import math

import pytest
import torch
from torch.nn import functional

from penstock.algorithms.dsac import learn as dsac_learn
from penstock.algorithms.dsac import spec as dsac_spec
from penstock.algorithms.dsac.learn import EPSILON, Returns, return_terms, sampled_return
from penstock.algorithms.dsact import learn as dsact_learn
from penstock.algorithms.dsact import spec as dsact_spec
from penstock.algorithms.off_policy.learn import Networks
from penstock.algorithms.sac.learn import actor_loss
from penstock.algorithms.sac.spec import policy_graph
from penstock.torch_networks.forward import Ensemble
from penstock.torch_networks.policy import Policy
from tests.algorithms.replay_rows import CONTINUOUS, constant, minibatch_of, noise_of, random, slope, state_of

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def raw(deviation):
    """The number whose softplus is ``deviation``."""
    return math.log(math.expm1(deviation))


def parts(name, critics, **settings):
    spec, learn = {"dsac": (dsac_spec, dsac_learn), "dsact": (dsact_spec, dsact_learn)}[name]
    config = {"dsac": dsac_spec.DSACConfig, "dsact": dsact_spec.DSACTConfig}[name](hidden_sizes=(5, 4), **settings)
    graph = policy_graph(CONTINUOUS, config, name)
    network = dsac_spec.return_network(graph, config)
    built = learn.build(CONTINUOUS, config)
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 2)
    rows |= {"reward": torch.tensor([1.0, 2.0]).double(), "discount": torch.tensor([0.9, 0.0]).double()}
    state = state_of(spec.init_state(CONTINUOUS, config, 1))
    # The mode of the target actor, with deviation 1: log pi = -log(2 pi). The actor itself is not used.
    state["target.actor"] = constant(graph.actor, 0.0, 0.0, 0.0, 0.0)
    state["log_alpha"] = torch.tensor([math.log(0.5)], dtype=torch.float64)
    return config, Networks(Policy(graph), Ensemble(network, critics, graph.encoding)), network, built, state, rows


def noise_for(returns):
    return {"next_action": torch.zeros(2, 2).double(), "next_return": torch.tensor(returns).double()}


LOG_PROB = -2.0 * HALF_LOG_TWO_PI


def test_dsac_aims_at_a_sampled_return_of_the_target_policy():
    _, of, network, _, state, rows = parts("dsac", 1)
    state["target.critic"] = constant(network, 3.0, raw(2.0))
    found = dsac_learn.critic_target(of, state, rows, noise_for([1.5, 1.5]))
    assert found.tolist() == pytest.approx([1.0 + 0.9 * (3.0 + 2.0 * 1.5 - 0.5 * LOG_PROB), 2.0])
    # No return is sampled further than three deviations from the mean.
    found = dsac_learn.critic_target(of, state, rows, noise_for([-7.0, 0.0]))
    assert float(found[0]) == pytest.approx(1.0 + 0.9 * (3.0 - 2.0 * 3.0 - 0.5 * LOG_PROB))


def test_dsac_gradient_by_hand():
    # Q 3, sigma 2; the target 10 is cut to 3 + 4 for the spread: -(10 - 3) / 4.1 and -((7 - 3)^2 - 4) / 8.1.
    mean = torch.tensor([[3.0]], dtype=torch.float64, requires_grad=True)
    deviation = torch.tensor([[2.0]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([10.0]).double()
    terms = return_terms(Returns(mean, deviation), target, torch.tensor([[7.0]]).double())
    found = torch.autograd.grad(terms.sum(), [mean, deviation])
    assert [float(part) for part in found] == pytest.approx([-7.0 / (4.0 + EPSILON), -12.0 / (8.0 + EPSILON)])


def test_without_bound_and_epsilon_the_gradient_is_that_of_the_normal_log_probability(monkeypatch):
    monkeypatch.setattr("penstock.algorithms.dsac.learn.EPSILON", 0.0)
    generator = torch.Generator().manual_seed(0)
    mean, target = random(generator, 1, 6).requires_grad_(), random(generator, 6)
    deviation = (0.5 + torch.rand(1, 6, generator=generator, dtype=torch.float64)).requires_grad_()
    found = torch.autograd.grad(
        return_terms(Returns(mean, deviation), target, target.unsqueeze(0)).sum(), [mean, deviation]
    )
    log_prob = torch.distributions.Normal(mean, deviation).log_prob(target).sum()
    for ours, theirs in zip(found, torch.autograd.grad(-log_prob, [mean, deviation]), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_dsac_bounds_what_the_spread_learns_from_and_the_bias_shows_it():
    _, _, network, built, state, rows = parts("dsac", 1, bound=4.0)
    state["critic"], state["target.critic"] = constant(network, 3.0, raw(2.0)), constant(network, 0.0, raw(1.0))
    rows["reward"], rows["discount"] = torch.tensor([10.0, 10.0]).double(), torch.zeros(2).double()
    found = built.phases[0].gradients(state, rows, noise_for([0.0, 0.0]))
    # The last two numbers are the biases of mean and raw deviation; softplus has the slope sigmoid(raw).
    slope_of = torch.sigmoid(torch.tensor(raw(2.0))).item()
    expected = [-7.0 / (4.0 + EPSILON), slope_of * -12.0 / (8.0 + EPSILON)]
    assert found.gradients["critic"][-2:].tolist() == pytest.approx(expected)
    assert float(found.metrics["value_loss"]) == pytest.approx(49.0)
    assert float(found.metrics["deviation"]) == pytest.approx(2.0)


def test_dsact_aims_at_an_expected_value_and_samples_from_the_smaller_critic():
    _, of, network, _, state, rows = parts("dsact", 2)
    state["target.critic"] = torch.cat((constant(network, 5.0, raw(1.0)), constant(network, 3.0, raw(2.0))))
    found = dsact_learn.critic_targets(of, state, rows, noise_for([1.5, 1.5]))
    assert found.expected.tolist() == pytest.approx([1.0 + 0.9 * (3.0 - 0.5 * LOG_PROB), 2.0])
    assert found.sampled.tolist() == pytest.approx([1.0 + 0.9 * (3.0 + 2.0 * 1.5 - 0.5 * LOG_PROB), 2.0])


def test_dsact_scales_and_bounds_by_each_critics_own_spread():
    _, _, network, built, state, rows = parts("dsact", 2, bound_scale=3.0, tau=0.25)
    state["critic"] = torch.cat((constant(network, 3.0, raw(2.0)), constant(network, 8.0, raw(1.0))))
    state["target.critic"] = torch.cat((constant(network, 0.0, raw(1.0)),) * 2)
    state["mean_deviation"] = torch.tensor([1.0, 5.0]).double()
    state["mean_variance"] = torch.tensor([1.5, 30.0]).double()
    rows["reward"], rows["discount"] = torch.tensor([10.0, 10.0]).double(), torch.zeros(2).double()
    phase = built.phases[0]
    found = phase.gradients(state, rows, noise_for([0.0, 0.0]))
    size = network.num_parameters
    # The first: bound 3, error 7 cut to 3. The second: bound 15, error 2.
    one = [-(1.5 + 0.1) * 7.0 / 4.1, -(1.5 + 0.1) * (9.0 - 4.0) / 8.1 * torch.sigmoid(torch.tensor(raw(2.0))).item()]
    two = [-(30.0 + 0.1) * 2.0 / 1.1, -(30.0 + 0.1) * (4.0 - 1.0) / 1.1 * torch.sigmoid(torch.tensor(raw(1.0))).item()]
    assert found.gradients["critic"][size - 2 : size].tolist() == pytest.approx(one)
    assert found.gradients["critic"][-2:].tolist() == pytest.approx(two)
    changed = phase.apply(state, found.gradients)
    assert changed["mean_deviation"].tolist() == pytest.approx([0.75 * 1.0 + 0.25 * 2.0, 0.75 * 5.0 + 0.25 * 1.0])
    assert changed["mean_variance"].tolist() == pytest.approx([0.75 * 1.5 + 0.25 * 4.0, 0.75 * 30.0 + 0.25 * 1.0])


def test_the_first_scales_are_those_of_a_network_that_says_nothing():
    first = dsact_spec.init_state(CONTINUOUS, dsact_spec.DSACTConfig(critics=3), 0)
    nothing = float(functional.softplus(torch.zeros(())))
    assert first["mean_deviation"].tolist() == pytest.approx([nothing] * 3)
    assert first["mean_variance"].tolist() == pytest.approx([nothing**2] * 3)


@pytest.mark.parametrize(("name", "critics"), [("dsac", 1), ("dsact", 2)])
def test_critic_gradients_agree_with_differences_of_their_terms(name, critics):
    config, of, _, built, state, _ = parts(name, critics)
    spec = {"dsac": dsac_spec, "dsact": dsact_spec}[name]
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 8)
    phase = built.phases[0]
    noise = noise_of(phase, 8)
    now = dsac_learn.returns_of(of, state, "critic", rows, rows["action"])
    if name == "dsac":
        target = sampled = dsac_learn.critic_target(of, state, rows, noise)
        bound, scale = torch.tensor([[config.bound]]).double(), torch.ones(1).double()
    else:
        target, sampled = dsact_learn.critic_targets(of, state, rows, noise)
        bound = config.bound_scale * state["mean_deviation"].unsqueeze(1)
        scale = state["mean_variance"] + EPSILON
    bounded = torch.minimum(torch.maximum(sampled, now.mean - bound), now.mean + bound)

    def loss(at):
        # The factors of the gradient are those of the state as it is: linear in mean and deviation.
        found = dsac_learn.returns_of(of, at, "critic", rows, rows["action"])
        of_mean = (target - now.mean) / (now.deviation**2 + EPSILON)
        of_deviation = ((bounded - now.mean) ** 2 - now.deviation**2) / (now.deviation**3 + EPSILON)
        return -(scale * (of_mean * found.mean + of_deviation * found.deviation).mean(1)).sum()

    found = phase.gradients(state, rows, noise)
    by_difference, by_gradient = slope(loss, state, "critic", found.gradients["critic"])
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)


@pytest.mark.parametrize(("name", "critics"), [("dsac", 1), ("dsact", 2)])
def test_the_delayed_actor_climbs_the_smallest_mean_and_moves_every_target(name, critics):
    config, of, _, built, state, _ = parts(name, critics, policy_delay=3, tau=0.25)
    assert [phase.every for phase in built.phases] == [1, 3]
    spec = {"dsac": dsac_spec, "dsact": dsact_spec}[name]
    rows = minibatch_of(CONTINUOUS, spec.spec(CONTINUOUS, config), 8)
    phase = built.phases[1]
    noise = noise_of(phase, 8)
    found = phase.gradients(state, rows, noise)
    by_difference, by_gradient = slope(
        lambda at: actor_loss(of, config, at, rows, noise["action"])[0], state, "actor", found.gradients["actor"]
    )
    assert by_gradient == pytest.approx(by_difference, rel=1e-5)
    changed = phase.apply(state, found.gradients)
    torch.testing.assert_close(changed["target.actor"], 0.75 * state["target.actor"] + 0.25 * changed["actor"])
    torch.testing.assert_close(changed["target.critic"], 0.75 * state["target.critic"] + 0.25 * state["critic"])
    assert "log_alpha" in changed


def test_a_return_is_sampled_within_three_deviations():
    returns = Returns(torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 2.0]]))
    assert sampled_return(returns, torch.tensor([0.5, 9.0])).tolist() == [[2.0, 7.0]]
