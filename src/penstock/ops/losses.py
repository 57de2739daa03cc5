"""Losses of a minibatch: weighted means over its rows. Padding rows have weight 0. Knows no networks.

All arguments are ``[n]`` float tensors. ``share`` is each row's weight divided by the sum of weights.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

__all__ = [
    "Mean",
    "Surrogate",
    "clipped_surrogate",
    "estimated_divergence",
    "huber",
    "mean_by",
    "normalised",
    "share_of",
    "squared_error",
]

Mean: TypeAlias = Callable[[Tensor], Tensor]
"""The weighted mean of one number for each row, ``[n] -> scalar``."""


class Surrogate(NamedTuple):
    """A policy loss, and two measures of how far the policy has moved. All scalars."""

    loss: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def share_of(weight: Tensor) -> Tensor:
    """``w_i / sum w``. It turns a sum over rows into a weighted mean."""
    _check_vector("weight", weight)
    return weight / weight.sum()


def clipped_surrogate(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, share: Tensor, eps: float, *, measured: Tensor
) -> Surrogate:
    """Clipped surrogate objective, negated: ``-E[min(r A, clip(r, 1 - eps, 1 + eps) A)]``, ``r = pi / pi_old``.

    ``min(r A, clip(r) A) = min(r A, A + eps |A|)``: the clip acts only where the ratio raises the objective.

    ``approx_kl`` is ``E[(r - 1) - log r]``, which is never negative (Schulman, http://joschu.net/blog/kl-approx.html);
    ``clip_fraction`` is the share of rows whose ratio left the interval.

    ``measured`` has the shares for these two measures. They are ``share``; or if another policy than pi_old chose the
    actions, each row's share times ``pi_old`` over that policy.

    Source: Schulman et al. 2017, equation 7, https://arxiv.org/abs/1707.06347.
    """
    for name, values in (("log_prob", log_prob), ("old_log_prob", old_log_prob), ("advantage", advantage)):
        _check_vector(name, values)
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    gain = ratio * advantage
    limit = advantage + eps * advantage.abs()
    # torch.where instead of torch.minimum: minimum halves the gradient at ties, which takes ten more calls.
    loss = -torch.dot(share, torch.where(gain < limit, gain, limit))
    with torch.no_grad():
        change = ratio - 1.0
        approx_kl = torch.dot(measured, change - log_ratio)
        clip_fraction = torch.dot(measured, (change.abs() > eps).to(share.dtype))
    return Surrogate(loss, approx_kl, clip_fraction)


def estimated_divergence(log_prob: Tensor, old_log_prob: Tensor, share: Tensor) -> Tensor:
    """An estimate of ``KL(pi_old || pi)`` from actions of pi_old: ``E[(r - 1) - log r]``, ``r = pi / pi_old``.

    No row's part is negative, and the gradient is that of the divergence on average. If another policy chose the
    actions, each row's share has to be multiplied by ``pi_old`` over that policy.

    Source: Schulman, http://joschu.net/blog/kl-approx.html.
    """
    _check_vector("log_prob", log_prob)
    _check_vector("old_log_prob", old_log_prob)
    log_ratio = log_prob - old_log_prob
    return torch.dot(share, torch.expm1(log_ratio) - log_ratio)


def squared_error(prediction: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """``E[(prediction - target)^2]``: scalar. Source: Schulman et al. 2017, equation 9, ``L^VF``."""
    _check_vector("prediction", prediction)
    _check_vector("target", target)
    error = prediction - target
    return torch.dot(share, error * error)


def huber(error: Tensor, limit: float) -> Tensor:
    """Elementwise ``e^2 / 2`` if ``|e| <= l``, else ``l (|e| - l/2)``. Its gradient is the error, cut to -l .. l.

    Source: Huber 1964; Mnih et al. 2015 cut the error to -1 .. 1, https://doi.org/10.1038/nature14236.
    """
    size = error.abs()
    inside = size.clamp(max=limit)
    return inside * (size - 0.5 * inside)


def mean_by(weight: Tensor) -> Mean:
    """The mean of values ``[n]`` by these weights, of any shape with n numbers."""
    share = share_of(weight.flatten())
    return lambda values: torch.dot(share, values)


def normalised(values: Tensor, mean: Mean, epsilon: float = 1e-8) -> Tensor:
    """``(x - mean) / (deviation + epsilon)``, with weighted mean and population deviation."""
    _check_vector("values", values)
    centred = values - mean(values)
    deviation = mean(centred * centred).sqrt()
    return centred / (deviation + epsilon)


def _check_vector(name: str, values: Tensor) -> None:
    if values.dim() != 1 or not values.is_floating_point():
        raise TypeError(f"{name} must be a float vector, not {values.dtype} of shape {tuple(values.shape)}")
