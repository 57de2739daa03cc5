"""Rewritten operators against the ones they stand for."""

import torch

from penstock.updates.compiled.lowering import rational_tanh, thin_addmm, thin_mm


def test_tanh_agrees_over_its_whole_range():
    x = torch.cat([torch.linspace(-12.0, 12.0, 100_001), torch.tensor([0.0, 1e-20, -1e-20, 1e30, -1e30])])
    exact = torch.tanh(x.double())
    assert float((rational_tanh(x).double() - exact).abs().max()) < 5e-7
    small = torch.linspace(1e-6, 0.5, 10_001)
    relative = (rational_tanh(small).double() / torch.tanh(small.double()) - 1.0).abs()
    assert float(relative.max()) < 1e-6


def test_tanh_keeps_sign_and_bounds():
    x = torch.linspace(-20.0, 20.0, 10_001)
    y = rational_tanh(x)
    assert float(y.abs().max()) <= 1.0 + 2e-7
    assert torch.equal(-rational_tanh(-x), y)


def test_thin_products_by_hand():
    # (1, 2) by ((3, 4), (5, 6)): 1 * 3 + 2 * 5 = 13, 1 * 4 + 2 * 6 = 16
    a, b = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    assert thin_mm(a, b).tolist() == [[13.0, 16.0]]
    assert thin_addmm(torch.tensor([10.0, 20.0]), a, b).tolist() == [[23.0, 36.0]]


def test_wide_products_are_left_to_the_library():
    wide = torch.eye(5)
    assert thin_mm(wide, wide) is None
    assert torch.equal(thin_addmm(torch.zeros(5), wide, wide), wide)
    assert thin_mm(torch.zeros(512, 3), torch.zeros(3, 64)) is None
