"""Action distributions as pure functions of their parameters. Generates no random numbers: noise is an input.

Rows come first: ``[n, ...]``. On-policy algorithms use a `Distribution` with ``log_prob``, ``entropy`` and ``sample``.
Algorithms that learn from replay need only the other functions here.
"""

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "CategoricalDistribution",
    "DiagonalGaussian",
    "Distribution",
    "TanhGaussian",
    "epsilon_greedy",
    "expected_value",
    "perturbed",
]

LOG_TWO = math.log(2.0)
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Distribution(Protocol):
    """The action distribution that a policy's head describes."""

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density or log-probability of ``action``: ``[n]``."""
        ...

    def entropy(self) -> Tensor:
        """Differential or discrete entropy in nats: ``[n]``."""
        ...

    def sample(self, noise: Tensor, explore: Tensor) -> Tensor:
        """The action for the given noise. ``explore`` ``[n]`` scales the noise; 0 gives the mode."""
        ...


class DiagonalGaussian(NamedTuple):
    """Independent normal variables with a common spread for all rows: ``mean`` ``[n, k]``, ``log_std`` ``[k]``."""

    mean: Tensor
    log_std: Tensor

    def log_prob(self, action: Tensor) -> Tensor:
        """``-sum_i ((a_i - mu_i)^2 / (2 sigma_i^2) + log sigma_i + log(2 pi) / 2)`` for ``action`` of n k elements."""
        _check_rank("mean", self.mean, 2)
        standard = (action.reshape(self.mean.shape) - self.mean) * torch.exp(-self.log_std)
        constant = self.log_std.sum() + self.mean.shape[1] * HALF_LOG_TWO_PI
        return -0.5 * (standard * standard).sum(1) - constant

    def entropy(self) -> Tensor:
        """``sum_i (1/2 + log(2 pi) / 2 + log sigma_i)``, the same for every row."""
        entropy = self.log_std.sum() + self.mean.shape[1] * (0.5 + HALF_LOG_TWO_PI)
        return entropy.expand(self.mean.shape[0])

    def sample(self, noise: Tensor, explore: Tensor) -> Tensor:
        """``mu + explore * sigma * noise`` with standard normal ``noise`` ``[n, k]``."""
        return self.mean + explore.unsqueeze(1) * torch.exp(self.log_std) * noise


class CategoricalDistribution(NamedTuple):
    """One of ``k`` actions with probabilities ``softmax(logits)``: ``logits`` ``[n, k]``."""

    logits: Tensor

    def log_prob(self, action: Tensor) -> Tensor:
        """``logits[a] - log sum exp(logits)`` for ``action`` ``[n]`` int64."""
        _check_rank("action", action, 1)
        if action.dtype != torch.int64:
            raise TypeError(f"a discrete action is int64, not {action.dtype}")
        return torch.log_softmax(self.logits, 1).gather(1, action.unsqueeze(1)).squeeze(1)

    def entropy(self) -> Tensor:
        """``-sum_i p_i log p_i``."""
        log_p = torch.log_softmax(self.logits, 1)
        return -(log_p.exp() * log_p).sum(1)

    def sample(self, noise: Tensor, explore: Tensor) -> Tensor:
        """``argmax_i (logits_i + explore * noise_i)`` with Gumbel ``noise`` ``[n, k]``. Exact if ``explore`` is 1."""
        return torch.argmax(self.logits + explore.unsqueeze(1) * noise, 1)


class TanhGaussian(NamedTuple):
    """``tanh(u)`` of independent normal ``u``. Each row has its own spread: ``mean`` and ``log_std`` are ``[n, k]``."""

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor, explore: Tensor) -> Tensor:
        """``tanh(mu + explore * sigma * noise)`` with standard normal ``noise`` ``[n, k]``; ``explore`` ``[n]``."""
        return torch.tanh(self.mean + explore.unsqueeze(1) * torch.exp(self.log_std) * noise)

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """A full sample ``[n, k]`` and its log-density ``[n]``, both differentiable in mean and spread.

        ``sum_i (-noise_i^2 / 2 - log sigma_i - log(2 pi) / 2 - log(1 - tanh(u_i)^2))``, whose last term is
        ``2 (log 2 - u - softplus(-2 u))``, which stays exact when tanh rounds to 1. Source: Haarnoja et al. 2018,
        https://arxiv.org/abs/1801.01290, equation 21.
        """
        u = self.mean + torch.exp(self.log_std) * noise
        normal = -0.5 * noise.square() - self.log_std - HALF_LOG_TWO_PI
        slope = 2.0 * (LOG_TWO - u - functional.softplus(-2.0 * u))
        return torch.tanh(u), (normal - slope).sum(1)


def perturbed(action: Tensor, noise: Tensor, explore: Tensor) -> Tensor:
    """``clip(action + explore * noise, -1, 1)``: ``action`` and ``noise`` ``[n, k]``, ``explore`` ``[n]``."""
    return (action + explore.unsqueeze(1) * noise).clamp(-1.0, 1.0)


def epsilon_greedy(q: Tensor, noise: Tensor, explore: Tensor) -> Tensor:
    """int64 ``[m]``: action ``floor(noise[:, 1] * n)`` if ``noise[:, 0] < explore``, else the best one.

    Args:
        q: ``[m, n]``; the first of equal values is the best.
        noise: uniform in [0, 1), ``[m, 2]``.
        explore: ``[m]``.
    """
    n = q.shape[1]
    anything = (noise[:, 1] * n).to(torch.int64).clamp(max=n - 1)  # the product may round up to n
    return torch.where(noise[:, 0] < explore, anything, torch.argmax(q, 1))


def expected_value(logits: Tensor, low: float, high: float) -> Tensor:
    """``[...]`` from ``[..., atoms]``: mean of ``softmax(logits)`` over atoms spaced evenly in ``low .. high``."""
    atoms = logits.shape[-1]
    support = torch.linspace(low, high, atoms, dtype=logits.dtype, device=logits.device)
    return (torch.softmax(logits, -1) * support).sum(-1)


def _check_rank(name: str, values: Tensor, rank: int) -> None:
    if values.dim() != rank:
        raise ValueError(f"{name} has shape {tuple(values.shape)}, expected {rank} dimensions")
