"""Losses over the rows of a minibatch, as weighted means: padding rows weigh nothing. Knows no networks.

All arguments are ``[n]`` float tensors. ``share`` is each row's share of the mean: its weight over the sum of weights.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Surrogate", "clipped_surrogate", "normalised", "share_of", "squared_error"]


class Surrogate(NamedTuple):
    """A policy loss and what it says about the step it takes; all scalars."""

    loss: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def share_of(weight: Tensor) -> Tensor:
    """``w_i / sum w``: what turns a sum over rows into a mean over rows that count."""
    _check_vector("weight", weight)
    return weight / weight.sum()


def clipped_surrogate(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, share: Tensor, eps: float
) -> Surrogate:
    """Clipped surrogate objective, negated: ``-E[min(r A, clip(r, 1 - eps, 1 + eps) A)]``, ``r = pi / pi_old``.

    ``approx_kl`` is ``E[(r - 1) - log r]``, which is never negative (Schulman, http://joschu.net/blog/kl-approx.html);
    ``clip_fraction`` is the share of rows whose ratio left the interval.

    Source: Schulman et al. 2017, equation 7, https://arxiv.org/abs/1707.06347.
    """
    for name, values in (("log_prob", log_prob), ("old_log_prob", old_log_prob), ("advantage", advantage)):
        _check_vector(name, values)
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    objective = torch.minimum(ratio * advantage, ratio.clamp(1.0 - eps, 1.0 + eps) * advantage)
    loss = -(share * objective).sum()
    with torch.no_grad():
        change = ratio - 1.0
        approx_kl = (share * (change - log_ratio)).sum()
        clip_fraction = (share * (change.abs() > eps)).sum()
    return Surrogate(loss, approx_kl, clip_fraction)


def squared_error(prediction: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """``E[(prediction - target)^2]``: scalar. Source: Schulman et al. 2017, equation 9, ``L^VF``."""
    _check_vector("prediction", prediction)
    _check_vector("target", target)
    return (share * (prediction - target).square()).sum()


def normalised(values: Tensor, weight: Tensor, epsilon: float = 1e-8) -> Tensor:
    """``(x - mean) / (std + epsilon)`` with mean and sample deviation over the rows that count."""
    _check_vector("values", values)
    count = weight.sum()
    centred = values - (weight * values).sum() / count
    variance = (weight * centred.square()).sum() / (count - 1.0).clamp(min=1.0)
    return centred / (variance.sqrt() + epsilon)


def _check_vector(name: str, values: Tensor) -> None:
    if values.dim() != 1 or not values.is_floating_point():
        raise TypeError(f"{name} must be a float vector, not {values.dtype} of shape {tuple(values.shape)}")
