"""Distributions against arithmetic by hand."""

import math

import pytest
import torch

from penstock.ops.distributions import (
    CategoricalDistribution,
    DiagonalGaussian,
    TanhGaussian,
    epsilon_greedy,
    expected_value,
    perturbed,
)

LOG_TWO_PI = math.log(2.0 * math.pi)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_gaussian_log_prob_by_hand():
    # mean (1, -2), sigma (1, 2), action (2, 2): z = (1, 2).
    # -(1/2 + 4/2) - (log 1 + log 2) - 2 * log(2 pi) / 2
    distribution = DiagonalGaussian(rows([1.0, -2.0]), rows(0.0, math.log(2.0)))
    expected = -2.5 - math.log(2.0) - LOG_TWO_PI
    assert distribution.log_prob(rows([2.0, 2.0])).tolist() == pytest.approx([expected])


def test_gaussian_entropy_by_hand():
    # sum of 1/2 + log(2 pi) / 2 + log sigma over sigma = (1, 2): 1 + log(2 pi) + log 2
    distribution = DiagonalGaussian(rows([0.0, 0.0], [5.0, 5.0]), rows(0.0, math.log(2.0)))
    expected = 1.0 + LOG_TWO_PI + math.log(2.0)
    assert distribution.entropy().tolist() == pytest.approx([expected, expected])


def test_gaussian_sample_scales_its_noise():
    # mean 1, sigma 2, noise 3: explore 1 gives 1 + 2 * 3 = 7, explore 0.5 gives 4, explore 0 the mean.
    distribution = DiagonalGaussian(rows([1.0], [1.0], [1.0]), rows(math.log(2.0)))
    action = distribution.sample(rows([3.0], [3.0], [3.0]), rows(1.0, 0.5, 0.0))
    assert action.flatten().tolist() == pytest.approx([7.0, 4.0, 1.0])


def test_gaussian_takes_actions_of_any_shape_with_as_many_elements():
    distribution = DiagonalGaussian(rows([0.0, 0.0]), rows(0.0, 0.0))
    assert distribution.log_prob(rows([[1.0], [1.0]])).tolist() == pytest.approx([-1.0 - LOG_TWO_PI])
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        distribution.log_prob(rows([1.0, 1.0, 1.0]))


def test_categorical_by_hand():
    # Logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8.
    distribution = CategoricalDistribution(torch.log(rows([1.0, 2.0, 5.0])))
    assert distribution.log_prob(torch.tensor([2])).item() == pytest.approx(math.log(5 / 8))
    expected = -(1 / 8 * math.log(1 / 8) + 2 / 8 * math.log(2 / 8) + 5 / 8 * math.log(5 / 8))
    assert distribution.entropy().item() == pytest.approx(expected)


def test_categorical_sample_adds_the_noise_to_the_logits():
    # Logits (0, 1), noise (3, 0): 3 against 1 explores, 0 against 1 is greedy.
    distribution = CategoricalDistribution(rows([0.0, 1.0], [0.0, 1.0]))
    assert distribution.sample(rows([3.0, 0.0], [3.0, 0.0]), rows(1.0, 0.0)).tolist() == [0, 1]


def test_gumbel_noise_samples_the_probabilities():
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(40_000, 3, generator=generator, dtype=torch.float64)
    distribution = CategoricalDistribution(torch.log(rows([1.0, 2.0, 5.0])).expand(40_000, 3))
    action = distribution.sample(-torch.log(-torch.log(uniform)), torch.ones(40_000, dtype=torch.float64))
    # Standard error of a share is at most sqrt(0.25 / 40000) = 0.0025.
    assert (torch.bincount(action) / 40_000).tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.01)


def test_a_discrete_action_is_int64():
    distribution = CategoricalDistribution(rows([0.0, 0.0]))
    with pytest.raises(TypeError, match=r"int64, not torch\.float64"):
        distribution.log_prob(rows(1.0))
    with pytest.raises(ValueError, match="expected 1 dimensions"):
        distribution.log_prob(torch.tensor([[1]]))


def test_tanh_gaussian_sample_by_hand():
    # mean 1, sigma 2, noise 3: explore 1 gives tanh(7), 0.5 tanh(4), 0 tanh(1).
    distribution = TanhGaussian(rows([1.0], [1.0], [1.0]), rows([math.log(2.0)]))
    action = distribution.sample(rows([3.0], [3.0], [3.0]), rows(1.0, 0.5, 0.0))
    assert action.flatten().tolist() == pytest.approx([math.tanh(7.0), math.tanh(4.0), math.tanh(1.0)])


def test_tanh_gaussian_log_prob_by_hand():
    # u = (0.5 + 2 * 1, 0 + 1 * 0) = (2.5, 0):
    # -1/2 - log 2 - 2 * log(2 pi) / 2 - log(1 - tanh(2.5)^2) - log(1 - 0)
    distribution = TanhGaussian(rows([0.5, 0.0]), rows([math.log(2.0), 0.0]))
    action, log_prob = distribution.sample_with_log_prob(rows([1.0, 0.0]))
    assert action.flatten().tolist() == pytest.approx([math.tanh(2.5), 0.0])
    expected = -0.5 - math.log(2.0) - LOG_TWO_PI - math.log(1.0 - math.tanh(2.5) ** 2)
    assert log_prob.tolist() == pytest.approx([expected])


def test_tanh_gaussian_log_prob_where_tanh_has_rounded_to_one():
    # 1 - tanh(u)^2 = 4 e^-2u / (1 + e^-2u)^2, so its logarithm is log 4 - 60 for |u| = 30, although tanh(30) = 1.
    distribution = TanhGaussian(rows([30.0], [-30.0]), rows([0.0], [0.0]))
    _, log_prob = distribution.sample_with_log_prob(rows([0.0], [0.0]))
    assert log_prob.tolist() == pytest.approx([-LOG_TWO_PI / 2.0 - math.log(4.0) + 60.0] * 2)
    single = TanhGaussian(torch.tensor([[30.0]]), torch.tensor([[0.0]])).sample_with_log_prob(torch.zeros(1, 1))
    assert single[1].item() == pytest.approx(-LOG_TWO_PI / 2.0 - math.log(4.0) + 60.0)


def test_tanh_gaussian_density_is_one_in_all():
    # Its integral over the actions, as the mean of p(a) / p(u) da/du over a fine grid of u.
    u = torch.linspace(-12.0, 12.0, 20_001, dtype=torch.float64)
    noise = (u - 0.3) / 0.7
    rows_of = torch.ones_like(u)[:, None]
    action, log_prob = TanhGaussian(0.3 * rows_of, math.log(0.7) * rows_of).sample_with_log_prob(noise[:, None])
    assert torch.trapezoid(log_prob.exp(), action.squeeze(1)).item() == pytest.approx(1.0, abs=1e-6)


def test_tanh_gaussian_gradients_by_hand():
    # d log p / d mu = 2 tanh(u), d log p / d log sigma = -1 + 2 tanh(u) sigma noise; u = 0.5 + 2 * 0.25 = 1.
    mean, log_std = rows([0.5]).requires_grad_(), rows([math.log(2.0)]).requires_grad_()
    _, log_prob = TanhGaussian(mean, log_std).sample_with_log_prob(rows([0.25]))
    log_prob.backward()
    assert mean.grad.item() == pytest.approx(2.0 * math.tanh(1.0))
    assert log_std.grad.item() == pytest.approx(-1.0 + 2.0 * math.tanh(1.0) * 0.5)


def test_a_perturbed_action_stays_inside():
    action = perturbed(rows([0.5, -0.9], [0.5, -0.9]), rows([1.0, -1.0], [1.0, -1.0]), rows(0.2, 0.0))
    assert action.tolist() == [pytest.approx([0.7, -1.0]), [0.5, -0.9]]


def test_epsilon_greedy_by_hand():
    # noise 0.2 against explore 0.2 does not explore, against 0.21 does: floor(0.5 * 3) = 1. Equals: the first.
    q = rows([1.0, 0.0, 1.0]).expand(3, 3)
    action = epsilon_greedy(q, rows([0.2, 0.5], [0.2, 0.5], [0.0, 1.0]), rows(0.2, 0.21, 1.0))
    assert action.tolist() == [0, 1, 2]


def test_an_expected_value_by_hand():
    # Atoms 2, 4, 6 with probabilities 1/8, 2/8, 5/8: 2/8 + 8/8 + 30/8 = 5.
    assert expected_value(torch.log(rows([1.0, 2.0, 5.0])), 2.0, 6.0).tolist() == pytest.approx([5.0])
