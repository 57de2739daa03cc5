"""Optimizer steps against arithmetic by hand, and against torch's own."""

import math

import pytest
import torch

from penstock.ops.optimizers import Adam, adam, clip_scale, decayed, global_norm, muon, orthogonalised, rmsprop, sgd


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_global_norm_spans_all_vectors():
    # sqrt(3^2 + 4^2 + 12^2) = 13
    assert global_norm([vector(3.0, 4.0), vector(12.0)]).item() == pytest.approx(13.0)


def test_clip_scale_by_hand():
    assert clip_scale([vector(3.0, 4.0)], 0.5).item() == pytest.approx(0.1, rel=1e-6)
    assert clip_scale([vector(0.3, 0.4)], 1.0).item() == 1.0
    assert clip_scale([vector(0.0)], 0.5).item() == 1.0


def test_first_adam_step_by_hand():
    # m = 0.1 g, v = 0.001 g^2, both corrected to g and g^2: the step is lr * g / (|g| + eps), here 0.1 * 2 / 2.5.
    at = adam(Adam(vector(1.0), vector(0.0), vector(0.0)), vector(2.0), torch.tensor(1), vector(0.1)[0], 0.5)
    assert at.parameter.item() == pytest.approx(1.0 - 0.08)
    assert at.m.item() == pytest.approx(0.2)
    assert at.v.item() == pytest.approx(0.004)


def test_second_adam_step_by_hand():
    # g = 2 then -1: m = 0.9 * 0.2 - 0.1 = 0.08, v = 0.999 * 0.004 + 0.001 = 0.004996,
    # corrected by 1 - 0.81 and 1 - 0.998001.
    at = Adam(vector(0.0), vector(0.2), vector(0.004))
    at = adam(at, vector(-1.0), torch.tensor(2), vector(0.1)[0], 1e-8)
    expected = -0.1 * (0.08 / 0.19) / (math.sqrt(0.004996 / 0.001999) + 1e-8)
    assert at.parameter.item() == pytest.approx(expected)


def test_moments_too_small_for_the_processor_are_0_and_nothing_else_changes():
    small = torch.finfo(torch.float32).tiny
    at = Adam(torch.ones(3), torch.tensor([small, 2.0 * small, -small]), torch.tensor([small, 2.0 * small, small]))
    at = adam(at, torch.zeros(3), torch.tensor(1000), 1e-3, 1e-8)
    # 0.9 and 0.999 of the smallest number are too small, of twice that they are not.
    assert (at.m[[0, 2]] == 0.0).all()
    assert (at.v[[0, 2]] == 0.0).all()
    assert at.m[1].item() == pytest.approx(1.8 * small, rel=1e-6)
    assert at.v[1].item() == pytest.approx(1.998 * small, rel=1e-6)
    assert (at.parameter == 1.0).all()


def test_adam_follows_torch():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(50, generator=generator, dtype=torch.float64)
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=3e-3, eps=1e-5)
    ours = Adam(start, torch.zeros_like(start), torch.zeros_like(start))
    for step in range(1, 201):
        gradient = torch.randn(50, generator=generator, dtype=torch.float64)
        theirs.grad = gradient.clone()
        optimizer.step()
        ours = adam(ours, gradient, torch.tensor(step), torch.tensor(3e-3, dtype=torch.float64), 1e-5)
    torch.testing.assert_close(ours.parameter, theirs.detach(), rtol=1e-12, atol=1e-12)


def test_rmsprop_by_hand():
    # v = 0.99 * 0 + 0.01 * 4 = 0.04; the step is 0.1 * 2 / sqrt(0.04 + 0.21) = 0.4
    parameter, v = rmsprop(vector(1.0), vector(2.0), vector(0.0), vector(0.1)[0], 0.21)
    assert parameter.item() == pytest.approx(0.6)
    assert v.item() == pytest.approx(0.04)


def test_second_rmsprop_step_by_hand():
    # v = 0.99 * 0.04 + 0.01 * 1 = 0.0496; the step is 0.1 * -1 / sqrt(0.0496 + 0.21)
    parameter, v = rmsprop(vector(0.6), vector(-1.0), vector(0.04), vector(0.1)[0], 0.21)
    assert v.item() == pytest.approx(0.0496)
    assert parameter.item() == pytest.approx(0.6 + 0.1 / math.sqrt(0.2596))


def test_two_steps_of_sgd_by_hand():
    # m = 2, p = 1 - 0.1 * 2 = 0.8; then m = 0.5 * 2 - 4 = -3, p = 0.8 + 0.1 * 3 = 1.1
    parameter, m = sgd(vector(1.0), vector(2.0), vector(0.0), vector(0.1)[0], 0.5)
    assert (parameter.item(), m.item()) == (pytest.approx(0.8), pytest.approx(2.0))
    parameter, m = sgd(parameter, vector(-4.0), m, vector(0.1)[0], 0.5)
    assert (parameter.item(), m.item()) == (pytest.approx(1.1), pytest.approx(-3.0))


def test_two_steps_of_adamw_by_hand():
    """Weight decay of 0.5 at a learning rate of 0.1 leaves 0.95 of a weight, before Adam's step. Others keep all."""
    at = Adam(vector(2.0, 2.0), vector(0.0, 0.0), vector(0.0, 0.0))
    # The first step of Adam is 0.1 * 2 / (2 + 0.5) = 0.08: 1.9 - 0.08, and 2 - 0.08.
    at = adam(at._replace(parameter=decayed(at.parameter, 1, 0.1 * 0.5)), vector(2.0, 2.0), torch.tensor(1), 0.1, 0.5)
    assert at.parameter.tolist() == pytest.approx([1.82, 1.92])
    # As above, g = 2 then -1: m = 0.08, v = 0.004996.
    step = 0.1 * (0.08 / 0.19) / (math.sqrt(0.004996 / 0.001999) + 0.5)
    at = adam(at._replace(parameter=decayed(at.parameter, 1, 0.1 * 0.5)), vector(-1.0, -1.0), torch.tensor(2), 0.1, 0.5)
    assert at.parameter.tolist() == pytest.approx([0.95 * 1.82 - step, 1.92 - step])


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_follows_torch(name):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(50, generator=generator, dtype=torch.float64)
    theirs, zero = start.clone().requires_grad_(), torch.zeros_like(start)
    settings = {"eps": 1e-5, "weight_decay": 0.02} if name == "AdamW" else {"momentum": 0.9}
    optimizer = getattr(torch.optim, name)([theirs], lr=3e-3, **settings)
    ours, m = Adam(start, zero, zero), zero
    for step in range(1, 201):
        gradient = torch.randn(50, generator=generator, dtype=torch.float64)
        theirs.grad = gradient.clone()
        optimizer.step()
        if name == "AdamW":
            ours = ours._replace(parameter=decayed(ours.parameter, 50, 3e-3 * 0.02))
            ours = adam(ours, gradient, torch.tensor(step), 3e-3, 1e-5)
        else:
            parameter, m = sgd(ours.parameter, gradient, m, 3e-3, 0.9)
            ours = ours._replace(parameter=parameter)
    torch.testing.assert_close(ours.parameter, theirs.detach(), rtol=1e-12, atol=1e-12)


def test_a_sum_of_gradients_too_small_for_the_processor_is_0():
    small = torch.finfo(torch.float32).tiny
    _, m = sgd(torch.ones(2), torch.zeros(2), torch.tensor([small, 2.0 * small]), 1e-3, 0.9)
    assert m[0] == 0.0
    assert m[1].item() == pytest.approx(1.8 * small, rel=1e-6)


def brought_up(value):
    """A singular value after the five steps of `orthogonalised`: a s + b s^3 + c s^5."""
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    return value


def test_singular_values_are_brought_near_1_by_hand():
    # |M| = 5, so that the singular values 3 and 4 begin as 0.6 and 0.8.
    for rows, columns in ((2, 3), (3, 2)):
        matrix = torch.zeros(2, rows, columns, dtype=torch.float64)
        matrix[0, 0, 0], matrix[0, 1, 1], matrix[1, 0, 0] = 3.0, -4.0, 7.0
        found = orthogonalised(matrix)
        expected = torch.zeros_like(matrix)
        expected[0, 0, 0], expected[0, 1, 1], expected[1, 0, 0] = brought_up(0.6), -brought_up(0.8), brought_up(1.0)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
        assert 0.6 < found.amax() < 1.3


def test_two_steps_of_muon_by_hand():
    """Of matrices of 2 x 3 with one singular value; a step is 0.2 sqrt(3) lr long. With momentum 0.5."""
    length = 0.1 * 0.2 * math.sqrt(3.0) * brought_up(1.0)
    gradient = torch.zeros(1, 2, 3, dtype=torch.float64)
    gradient[0, 1, 2] = 2.0
    zero = torch.zeros_like(gradient)
    # m = 2, and the direction is that of 2 + 0.5 * 2.
    parameter, m = muon(zero, gradient, zero, 0.1, 0.5)
    assert (parameter[0, 1, 2].item(), m[0, 1, 2].item()) == (pytest.approx(-length, rel=1e-6), 2.0)
    # m = 0.5 * 2 - 1 = 0, and the direction is that of -1.
    parameter, m = muon(parameter, -0.5 * gradient, m, 0.1, 0.5)
    assert (parameter[0, 1, 2].item(), m[0, 1, 2].item()) == (pytest.approx(0.0, abs=1e-6), 0.0)


def test_muon_is_near_torch_which_rounds_to_bfloat16():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(12, 20, generator=generator)
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.Muon([theirs], lr=1e-2, momentum=0.9, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    ours, m = start[None], torch.zeros(1, 12, 20)
    for _ in range(5):
        gradient = torch.randn(12, 20, generator=generator)
        theirs.grad = gradient.clone()
        optimizer.step()
        ours, m = muon(ours, gradient[None], m, 1e-2, 0.9)
    moved = (theirs.detach() - start).norm()
    assert (ours[0] - theirs.detach()).norm() < 0.02 * moved
