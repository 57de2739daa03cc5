"""Value rescaling against numbers worked by hand."""

import pytest
import torch

from penstock.ops.rescaling import rescaled, unscaled


def test_rescaling_by_hand():
    """h(3) = sqrt(4) - 1 + 0.003, h(-8) = -(sqrt(9) - 1) - 0.008, h(0) = 0."""
    found = rescaled(torch.tensor([3.0, -8.0, 0.0, 99.0], dtype=torch.float64))
    assert found.tolist() == pytest.approx([1.003, -2.008, 0.0, 9.099])


def test_the_inverse_by_hand():
    """With eps = 2 and y = 3: 2 u^2 + u = 6, so u = 3/2 and x = u^2 - 1 = 5/4. h(5/4) = 3/2 - 1 + 5/2 = 3."""
    found = unscaled(torch.tensor([3.0, -3.0], dtype=torch.float64), eps=2.0)
    assert found.tolist() == pytest.approx([1.25, -1.25])
    assert rescaled(torch.tensor([1.25], dtype=torch.float64), eps=2.0).tolist() == pytest.approx([3.0])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_inverse_is_the_inverse(dtype, tolerance):
    values = torch.cat([torch.linspace(-2.0, 2.0, 81), torch.tensor([1e-4, 1e3, -1e3, 1e6])]).to(dtype)
    back = unscaled(rescaled(values))
    assert torch.allclose(back, values, rtol=tolerance, atol=tolerance)
