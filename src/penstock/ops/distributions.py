"""Action distributions as pure functions of their parameters. Generates no random numbers: noise is an input.

Rows come first: ``[n, ...]``. On-policy algorithms use a `Distribution` with ``log_prob``, ``entropy`` and ``sample``.
Algorithms that learn from replay need only the other functions here.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from penstock.policies.heads import FORBIDDEN

__all__ = [
    "CategoricalDistribution",
    "CategoricalRow",
    "DiagonalGaussian",
    "Distribution",
    "Joint",
    "JointPart",
    "TanhGaussian",
    "best_action",
    "epsilon_greedy",
    "expected_value",
    "masked",
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


class CategoricalRow(NamedTuple):
    """Independent choices, element i one of ``choices[i]``. ``logits`` ``[n, sum(choices)]``: element after element."""

    logits: Tensor
    choices: tuple[int, ...]

    def log_prob(self, action: Tensor) -> Tensor:
        """The sum over elements of ``logits[a] - log sum exp(logits)`` for ``action`` ``[n, k]`` of whole numbers."""
        _check_rank("action", action, 2)
        log_p = torch.log_softmax(_padded(self.logits, self.choices), 2)
        return log_p.gather(2, action.to(torch.int64).unsqueeze(2)).squeeze(2).sum(1)

    def entropy(self) -> Tensor:
        """The sum of the elements' entropies."""
        log_p = torch.log_softmax(_padded(self.logits, self.choices), 2)
        return -(log_p.exp() * log_p).sum((1, 2))

    def sample(self, noise: Tensor, explore: Tensor) -> Tensor:
        """int64 ``[n, k]``: for each element as `CategoricalDistribution.sample`; ``noise`` is as the logits."""
        return torch.argmax(_padded(self.logits + explore.unsqueeze(1) * noise, self.choices), 2)


class JointPart(NamedTuple):
    """Some elements of an action, independent of the others."""

    distribution: Distribution
    noise: slice
    """Their place among the noise."""
    elements: slice
    """Their place among the elements of the action."""


class Joint(NamedTuple):
    """Independent parts of one action. Log-probabilities and entropies are sums over the parts."""

    parts: tuple[JointPart, ...]

    def log_prob(self, action: Tensor) -> Tensor:
        """``[n]`` for ``action`` ``[n, ...]``. Its elements are those of the parts, one after the other."""
        flat = action.flatten(1)
        return torch.stack([part.distribution.log_prob(flat[:, part.elements]) for part in self.parts]).sum(0)

    def entropy(self) -> Tensor:
        """``[n]``."""
        return torch.stack([part.distribution.entropy() for part in self.parts]).sum(0)

    def sample(self, noise: Tensor, explore: Tensor) -> Tensor:
        """``[n, size]``: int64 if no part is continuous, else in the type of the noise."""
        found = [part.distribution.sample(noise[:, part.noise], explore) for part in self.parts]
        return found[0] if len(found) == 1 else torch.cat([values.to(noise.dtype) for values in found], 1)


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


def masked(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits ``[n, k]`` with `FORBIDDEN` where ``mask`` ``[n, k]`` is 0: probability 0, and a gradient of exactly 0."""
    return logits.masked_fill(mask == 0, FORBIDDEN)


def _padded(logits: Tensor, choices: Sequence[int]) -> Tensor:
    """``[n, sum(choices)]`` as ``[n, elements, max(choices)]``. What is added has probability 0."""
    most = max(choices)
    if min(choices) == most:
        return logits.reshape(-1, len(choices), most)
    parts = torch.split(logits, list(choices), 1)
    return torch.stack([functional.pad(part, (0, most - part.shape[1]), value=FORBIDDEN) for part in parts], 1)


def perturbed(action: Tensor, noise: Tensor, explore: Tensor) -> Tensor:
    """``clip(action + explore * noise, -1, 1)``: ``action`` and ``noise`` ``[n, k]``, ``explore`` ``[n]``."""
    return (action + explore.unsqueeze(1) * noise).clamp(-1.0, 1.0)


def epsilon_greedy(q: Tensor, noise: Tensor, explore: Tensor, mask: Tensor | None) -> Tensor:
    """int64 ``[m]``: possible action number ``floor(noise[:, 1] * n)`` if ``noise[:, 0] < explore``, else the best one.

    In a row without a possible action, action 0 stands for none, as in all backends.

    Args:
        q: ``[m, actions]``; the first of equal values is the best.
        noise: uniform in [0, 1), ``[m, 2]``.
        explore: ``[m]``.
        mask: ``[m, actions]``, 0 where an action is not possible; ``None``: all are. n counts those possible.
    """
    possible = torch.ones_like(q, dtype=torch.int64) if mask is None else (mask != 0).to(torch.int64)
    counted = possible.cumsum(1)
    n = counted[:, -1]
    number = torch.minimum((noise[:, 1] * n).to(torch.int64), n - 1)  # the product may round up to n
    # The first action with more than `number` possible ones up to it; `argmax` takes no bool on every device.
    anything = (counted > number.unsqueeze(1)).to(torch.int64).argmax(1)
    best = torch.argmax(q if mask is None else q.masked_fill(mask == 0, -torch.inf), 1)
    return torch.where(noise[:, 0] < explore, anything, best)


def best_action(q: Tensor, mask: Tensor | None) -> Tensor:
    """int64 ``[m]``: the possible action with the largest value ``q`` ``[m, n]``; the first of equal ones.

    For targets: nobody takes this action. For one that is taken, see `epsilon_greedy`.

    Args:
        q: action values.
        mask: ``[m, n]``, 0 where an action is not possible; ``None``: all are. A row in which none is possible counts
            as one in which all are.
    """
    if mask is None:
        return torch.argmax(q, 1)
    forbidden = (mask == 0) & (mask != 0).any(1, keepdim=True)
    return torch.argmax(q.masked_fill(forbidden, -torch.inf), 1)


def expected_value(logits: Tensor, low: float, high: float) -> Tensor:
    """``[...]`` from ``[..., atoms]``: mean of ``softmax(logits)`` over atoms spaced evenly in ``low .. high``."""
    atoms = logits.shape[-1]
    support = torch.linspace(low, high, atoms, dtype=logits.dtype, device=logits.device)
    return (torch.softmax(logits, -1) * support).sum(-1)


def _check_rank(name: str, values: Tensor, rank: int) -> None:
    if values.dim() != rank:
        raise ValueError(f"{name} has shape {tuple(values.shape)}, expected {rank} dimensions")
