"""Losses against arithmetic by hand."""

import math

import pytest
import torch

from penstock.ops.losses import clipped_surrogate, estimated_divergence, mean_by, normalised, share_of, squared_error


def vector(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def logs(*ratios):
    return [math.log(ratio) for ratio in ratios]


def surrogate(ratios, advantage, weight=None):
    new = vector(*logs(*ratios))
    share = share_of(torch.ones(len(ratios), dtype=torch.float64) if weight is None else vector(*weight).detach())
    return new, clipped_surrogate(new, torch.zeros_like(new), vector(*advantage).detach(), share, 0.2, measured=share)


def test_surrogate_by_hand():
    # ratio, A -> min(r A, clip(r) A): 1.5, 2 -> 2.4 (clipped); 0.5, 2 -> 1; 1.5, -2 -> -3; 0.5, -2 -> -1.6 (clipped)
    _, result = surrogate([1.5, 0.5, 1.5, 0.5], [2.0, 2.0, -2.0, -2.0])
    assert result.loss.item() == pytest.approx(-(2.4 + 1.0 - 3.0 - 1.6) / 4)
    assert result.clip_fraction.item() == 1.0


def test_surrogate_is_the_formula_of_the_paper():
    generator = torch.Generator().manual_seed(0)
    log_ratio = 0.4 * torch.randn(1000, generator=generator, dtype=torch.float64)
    advantage = torch.randn(1000, generator=generator, dtype=torch.float64)
    ratio = log_ratio.exp()
    paper = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    share = torch.full((1000,), 1e-3, dtype=torch.float64)
    result = clipped_surrogate(log_ratio, torch.zeros_like(log_ratio), advantage, share, 0.2, measured=share)
    assert result.loss.item() == pytest.approx(-paper.item())
    assert result.clip_fraction.item() == pytest.approx(((ratio - 1.0).abs() > 0.2).double().mean().item())


def test_surrogate_stops_the_gradient_only_where_the_clip_binds():
    # d(-min)/d log r = -r A / n where it does not bind: 0; -0.5 * 2 / 4; 1.5 * 2 / 4; 0.
    new, result = surrogate([1.5, 0.5, 1.5, 0.5], [2.0, 2.0, -2.0, -2.0])
    (gradient,) = torch.autograd.grad(result.loss, new)
    assert gradient.tolist() == pytest.approx([0.0, -0.25, 0.75, 0.0])


def test_approx_kl_by_hand():
    # (r - 1) - log r over r = 2 and 1/2: (1 - log 2 + (-1/2) + log 2) / 2 = 1/4
    _, result = surrogate([2.0, 0.5], [1.0, 1.0])
    assert result.approx_kl.item() == pytest.approx(0.25)


def test_measures_have_shares_of_their_own_by_hand():
    # Ratios 2 and exp(60), of which the second row is measured by 0: 3/2 (1 - log 2), and 3/2 of the rows are outside.
    new, share = vector(math.log(2.0), 60.0), vector(0.5, 0.5).detach()
    measured = vector(1.5, 0.0).detach()
    result = clipped_surrogate(new, torch.zeros_like(new), 0.0 * share, share, 0.2, measured=measured)
    assert result.approx_kl.item() == pytest.approx(1.5 * (1.0 - math.log(2.0)))
    assert result.clip_fraction.item() == 1.5


def test_divergence_by_hand():
    # (r - 1) - log r over r = 2 and 1/2: 1 - log 2 with share 3/4, log 2 - 1/2 with 1/4.
    # d/d log r = r - 1: 1 and -1/2.
    new, share = vector(*logs(2.0, 0.5)), share_of(vector(3.0, 1.0).detach())
    found = estimated_divergence(new, torch.zeros_like(new), share)
    assert found.item() == pytest.approx(0.75 * (1.0 - math.log(2.0)) + 0.25 * (math.log(2.0) - 0.5))
    (gradient,) = torch.autograd.grad(found, new)
    assert gradient.tolist() == pytest.approx([0.75, -0.125])


def test_the_gradient_of_the_divergence_is_on_average_that_of_the_exact_one():
    """Actions 0, 1 and 2 come as often as the old policy chooses them."""
    old = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    logits = vector(0.3, -0.2, 0.4)
    new = torch.log_softmax(logits, 0)
    exact = (old * (old.log() - new)).sum()
    estimate = estimated_divergence(new, old.log(), old)
    assert estimate.item() == pytest.approx(exact.item())
    (expected,) = torch.autograd.grad(exact, logits, retain_graph=True)
    (found,) = torch.autograd.grad(estimate, logits)
    assert found.tolist() == pytest.approx(expected.tolist())


def test_rows_of_weight_zero_do_not_count():
    _, padded = surrogate([1.1, 3.0], [1.0, -9.0], weight=[1.0, 0.0])
    _, alone = surrogate([1.1], [1.0])
    for one, other in zip(padded, alone, strict=True):
        assert one.item() == pytest.approx(other.item())


def test_squared_error_by_hand():
    # (1 - 3)^2 with share 3/4, (2 - 2)^2 with 1/4: 3
    share = share_of(vector(3.0, 1.0).detach())
    assert squared_error(vector(1.0, 2.0), vector(3.0, 2.0), share).item() == pytest.approx(3.0)


def test_normalised_by_hand():
    # 1, 2, 3: mean 2, population deviation sqrt(2/3)
    values = normalised(vector(1.0, 2.0, 3.0), mean_by(vector(1.0, 1.0, 1.0).detach()))
    assert values.tolist() == pytest.approx([-math.sqrt(1.5), 0.0, math.sqrt(1.5)], abs=1e-6)


def test_normalised_leaves_padding_out():
    values = normalised(vector(1.0, 3.0, 100.0), mean_by(vector(1.0, 1.0, 0.0).detach()))
    assert values[:2].tolist() == pytest.approx([-1.0, 1.0])


def test_a_single_row_is_normalised_to_zero():
    assert normalised(vector(7.0), mean_by(vector(1.0).detach())).tolist() == [0.0]


def test_shapes_and_types_are_checked():
    with pytest.raises(TypeError, match=r"log_prob must be a float vector, not torch.float32 of shape \(2, 1\)"):
        clipped_surrogate(
            torch.zeros(2, 1), torch.zeros(2), torch.zeros(2), torch.ones(2) / 2, 0.2, measured=torch.ones(2) / 2
        )
    with pytest.raises(TypeError, match=r"weight must be a float vector, not torch\.int64"):
        share_of(torch.ones(2, dtype=torch.int64))
