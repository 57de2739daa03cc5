"""Action distributions as pure functions of their parameters. Draws no random numbers: noise is an input.

Rows come first: ``[n, ...]``. Each distribution knows ``log_prob``, ``entropy``, ``kl`` and ``sample``.
"""

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

__all__ = ["CategoricalDistribution", "DiagonalGaussian", "Distribution"]

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Distribution(Protocol):
    """What an algorithm may ask of the distribution that a policy's head describes."""

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density or log-probability of ``action``: ``[n]``."""
        ...

    def entropy(self) -> Tensor:
        """Differential or discrete entropy in nats: ``[n]``."""
        ...

    def sample(self, noise: Tensor, explore: Tensor) -> Tensor:
        """The action for given noise; ``explore`` ``[n]`` scales the noise, 0 gives the mode."""
        ...


class DiagonalGaussian(NamedTuple):
    """Independent normal variables with a common spread for all rows: ``mean`` ``[n, k]``, ``log_std`` ``[k]``."""

    mean: Tensor
    log_std: Tensor

    def log_prob(self, action: Tensor) -> Tensor:
        """``-sum_i ((a_i - mu_i)^2 / (2 sigma_i^2) + log sigma_i + log(2 pi) / 2)`` for n k elements."""
        _check_rank("mean", self.mean, 2)
        standard = (action.reshape(self.mean.shape) - self.mean) * torch.exp(-self.log_std)
        constant = self.log_std.sum() + self.mean.shape[1] * HALF_LOG_TWO_PI
        return -0.5 * (standard * standard).sum(1) - constant

    def entropy(self) -> Tensor:
        """``sum_i (1/2 + log(2 pi) / 2 + log sigma_i)``, the same for every row."""
        entropy = self.log_std.sum() + self.mean.shape[1] * (0.5 + HALF_LOG_TWO_PI)
        return entropy.expand(self.mean.shape[0])

    def kl(self, other: "DiagonalGaussian") -> Tensor:
        """``KL(self || other)``: ``sum_i (log(s2/s1) + (s1^2 + (m1 - m2)^2) / (2 s2^2) - 1/2)``."""
        variance = torch.exp(2.0 * self.log_std)
        distance = (self.mean - other.mean).square()
        ratio = (variance + distance) * (0.5 * torch.exp(-2.0 * other.log_std))
        return (ratio + other.log_std - self.log_std - 0.5).sum(1)

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

    def kl(self, other: "CategoricalDistribution") -> Tensor:
        """``KL(self || other) = sum_i p_i (log p_i - log q_i)``."""
        log_p = torch.log_softmax(self.logits, 1)
        log_q = torch.log_softmax(other.logits, 1)
        return (log_p.exp() * (log_p - log_q)).sum(1)

    def sample(self, noise: Tensor, explore: Tensor) -> Tensor:
        """``argmax_i (logits_i + explore * noise_i)`` with Gumbel ``noise`` ``[n, k]``: an exact sample at 1."""
        return torch.argmax(self.logits + explore.unsqueeze(1) * noise, 1)


def _check_rank(name: str, values: Tensor, rank: int) -> None:
    if values.dim() != rank:
        raise ValueError(f"{name} has shape {tuple(values.shape)}, expected {rank} dimensions")
