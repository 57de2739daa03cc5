"""Returns as probabilities of a few values, the atoms. Knows no networks. All tensors are float, rows first."""

import torch
from torch import Tensor

__all__ = ["cross_entropy", "divergence", "projected", "support"]


def support(like: Tensor, low: float, high: float, atoms: int) -> Tensor:
    """The values of the atoms, evenly spaced from ``low`` to ``high``: ``[atoms]``, dtype and device of ``like``."""
    return torch.linspace(low, high, atoms, dtype=like.dtype, device=like.device)


def projected(probability: Tensor, value: Tensor, low: float, high: float) -> Tensor:
    """Project probabilities of arbitrary values to probabilities of the atoms: ``[n, atoms]``.

    ``m_i = sum_j p_j max(0, 1 - |clip(y_j, low, high) - z_i| / spacing)``: the two atoms next to a value share its
    probability.

    Args:
        probability: ``p``, ``[n, atoms]``.
        value: ``y``, ``[n, atoms]``.
        low: value of the first atom.
        high: value of the last atom.

    Source: Bellemare et al. 2017, equation 7, https://arxiv.org/abs/1707.06887.
    """
    atoms = probability.shape[1]
    z = support(probability, low, high, atoms)
    spacing = (high - low) / (atoms - 1)
    distance = (value.clamp(low, high).unsqueeze(1) - z.unsqueeze(1)).abs() / spacing
    return torch.bmm((1.0 - distance).clamp(min=0.0), probability.unsqueeze(2)).squeeze(2)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """``-sum_i m_i log softmax(logits)_i``: ``[n]`` for ``target`` and ``logits`` ``[n, atoms]``."""
    return -(target * torch.log_softmax(logits, 1)).sum(1)


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """``KL(m || softmax(logits)) = sum_i m_i (log m_i - log softmax(logits)_i)``, at least 0: ``[n]``."""
    return (cross_entropy(target, logits) + torch.xlogy(target, target).sum(1)).clamp(min=0.0)
