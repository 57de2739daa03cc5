"""Distributions against arithmetic by hand."""

import math

import pytest
import torch

from penstock.ops.distributions import (
    CategoricalDistribution,
    CategoricalRow,
    DiagonalGaussian,
    Joint,
    JointPart,
    TanhGaussian,
    best_action,
    epsilon_greedy,
    expected_value,
    masked,
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
    action = epsilon_greedy(q, rows([0.2, 0.5], [0.2, 0.5], [0.0, 1.0]), rows(0.2, 0.21, 1.0), None)
    assert action.tolist() == [0, 1, 2]


def test_epsilon_greedy_takes_only_possible_actions_by_hand():
    # The best of actions 1, 3 and 4 is 1, although 0 has more. At random: floor(0.5 * 3) = 1, the second of them is 3;
    # 1.0 counts as the last.
    q = rows([5.0, 4.0, 3.0, 2.0, 1.0]).expand(3, 5)
    mask = torch.tensor([[0, 1, 0, 1, 1]] * 3, dtype=torch.uint8)
    noise = rows([0.5, 0.0], [0.0, 0.5], [0.0, 1.0])
    action = epsilon_greedy(q, noise, rows(0.5, 0.5, 0.5), mask)
    assert action.tolist() == [1, 3, 4]


def test_without_a_possible_action_action_0_stands_for_none():
    # The first row takes the best action, which would be 2; the second one takes a random one.
    q, mask = rows([1.0, 2.0, 3.0]).expand(2, 3), torch.zeros(2, 3, dtype=torch.uint8)
    assert epsilon_greedy(q, rows([0.5, 0.9], [0.0, 0.9]), rows(0.5, 0.5), mask).tolist() == [0, 0]


def test_the_best_action_is_a_possible_one_unless_none_is():
    q = rows([1.0, 9.0, 3.0], [1.0, 9.0, 3.0], [-5.0, 9.0, -5.0])
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 0, 1]], dtype=torch.uint8)
    assert best_action(q, mask).tolist() == [2, 1, 0]
    assert best_action(q, None).tolist() == [1, 1, 1]


def test_an_expected_value_by_hand():
    # Atoms 2, 4, 6 with probabilities 1/8, 2/8, 5/8: 2/8 + 8/8 + 30/8 = 5.
    assert expected_value(torch.log(rows([1.0, 2.0, 5.0])), 2.0, 6.0).tolist() == pytest.approx([5.0])


def test_a_masked_choice_has_probability_zero_and_gets_no_gradient():
    # Logits log 1, log 2, log 5, log 3 without the third: probabilities 1/6, 2/6, 0, 3/6.
    logits = torch.log(rows([1.0, 2.0, 5.0, 3.0])).requires_grad_()
    distribution = CategoricalDistribution(masked(logits, torch.tensor([[1, 1, 0, 1]], dtype=torch.uint8)))
    probabilities = [distribution.log_prob(torch.tensor([action])).exp().item() for action in range(4)]
    assert probabilities == pytest.approx([1 / 6, 2 / 6, 0.0, 3 / 6])
    assert probabilities[2] == 0.0
    entropy = distribution.entropy()
    assert entropy.item() == pytest.approx(-sum(p * math.log(p) for p in (1 / 6, 2 / 6, 3 / 6)))
    (gradient,) = torch.autograd.grad(distribution.log_prob(torch.tensor([1])) + entropy, logits)
    assert gradient[0, 2].item() == 0.0
    # Of log p_1: 1 - p_1 for itself, -p_i for the others; of the entropy: -p_i (log p_i + S).
    p = torch.tensor([1 / 6, 2 / 6, 3 / 6], dtype=torch.float64)
    expected = torch.tensor([0.0, 1.0, 0.0]) - p - p * (p.log() + entropy.item())
    torch.testing.assert_close(gradient[0, [0, 1, 3]], expected)


def test_no_noise_makes_a_masked_choice():
    logits = masked(rows([0.0, 50.0]).expand(2, 2), torch.tensor([[1, 0], [1, 0]]))
    sampled = CategoricalDistribution(logits).sample(rows([0.0, 1e4], [-100.0, 17.0]), rows(1.0, 1.0))
    assert sampled.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mask_that_forbids_everything_makes_no_nan(dtype):
    logits = torch.tensor([[1.0, 2.0]], dtype=dtype, requires_grad=True)
    distribution = CategoricalDistribution(masked(logits, torch.zeros(1, 2)))
    loss = distribution.log_prob(torch.tensor([0])) + distribution.entropy()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(loss).all()
    assert gradient.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("choices", [(2, 2, 2), (3, 1, 4)])
def test_a_row_of_choices_is_the_product_of_its_parts(choices):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, sum(choices), generator=generator, dtype=torch.float64)
    noise = torch.rand(5, sum(choices), generator=generator, dtype=torch.float64)
    explore = torch.rand(5, generator=generator, dtype=torch.float64)
    row = CategoricalRow(logits, choices)
    parts = [CategoricalDistribution(part) for part in torch.split(logits, choices, 1)]
    expected = [part.sample(own, explore) for part, own in zip(parts, torch.split(noise, choices, 1), strict=True)]
    action = row.sample(noise, explore)
    torch.testing.assert_close(action, torch.stack(expected, 1))
    log_prob = sum(part.log_prob(action[:, index]) for index, part in enumerate(parts))
    torch.testing.assert_close(row.log_prob(action), log_prob)
    # A stored action may hold its choices as numbers.
    torch.testing.assert_close(row.log_prob(action.double()), log_prob)
    torch.testing.assert_close(row.entropy(), sum(part.entropy() for part in parts))


def test_a_joint_log_prob_sums_to_one_over_all_choices():
    choices = CategoricalRow(rows([0.3, -1.0, 0.4, 0.2, 2.0]), (2, 3))
    total = sum(choices.log_prob(torch.tensor([[i, j]])).exp().item() for i in range(2) for j in range(3))
    assert total == pytest.approx(1.0)


def test_a_choice_and_its_numbers_add_up():
    choice, number = CategoricalRow(torch.log(rows([1.0, 3.0])), (2,)), DiagonalGaussian(rows([1.0]), rows(0.0))
    joint = Joint((JointPart(choice, slice(0, 2), slice(0, 1)), JointPart(number, slice(2, 3), slice(1, 2))))
    # p = 3/4; density of 2 at mean 1 and sigma 1.
    expected = math.log(3 / 4) - 0.5 - 0.5 * LOG_TWO_PI
    assert joint.log_prob(rows([1.0, 2.0])).item() == pytest.approx(expected)
    entropy = -(1 / 4 * math.log(1 / 4) + 3 / 4 * math.log(3 / 4)) + 0.5 + 0.5 * LOG_TWO_PI
    assert joint.entropy().item() == pytest.approx(entropy)
    # Noise 2 for the first choice: log 1 + 2 > log 3. Noise 0.5 for the number: 1 + 0.5.
    assert joint.sample(rows([2.0, 0.0, 0.5]), rows(1.0)).tolist() == [[0.0, 1.5]]
    assert joint.sample(rows([2.0, 0.0, 0.5]), rows(0.0)).tolist() == [[1.0, 1.0]]
