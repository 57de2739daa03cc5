"""Value rescaling: an invertible squashing of returns, so that rewards of any size can be learned. Knows no networks.

Source: Pohlen et al. 2018, proposition A.2, https://arxiv.org/abs/1805.11593.
"""

from torch import Tensor

__all__ = ["EPSILON", "rescaled", "unscaled"]

EPSILON = 1e-3
"""Share of the value that stays linear. Without it the inverse would not be Lipschitz continuous."""


def rescaled(value: Tensor, eps: float = EPSILON) -> Tensor:
    """``h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x``, of any shape."""
    return value.sign() * ((value.abs() + 1.0).sqrt() - 1.0) + eps * value


def unscaled(value: Tensor, eps: float = EPSILON) -> Tensor:
    """The inverse of `rescaled`.

    ``h^-1(y) = sign(y) (u^2 - 1)``, where ``u = 2 (|y| + 1 + eps) / (1 + sqrt(1 + 4 eps (|y| + 1 + eps)))`` is the
    positive root of ``eps u^2 + u = |y| + 1 + eps``. The paper's form divides a difference of nearly equal numbers by
    ``2 eps``, which costs float32 three digits.
    """
    shifted = value.abs() + 1.0 + eps
    root = 2.0 * shifted / (1.0 + (1.0 + 4.0 * eps * shifted).sqrt())
    return value.sign() * (root.square() - 1.0)
