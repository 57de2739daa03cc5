"""V-trace: value targets and advantages of rows that an older policy collected, as pure functions. Knows no networks.

Lanes come first, then time: ``[m, T]``. An updater gathers whole lanes in this order.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Steps", "VTrace", "chained", "vtrace"]


class Steps(NamedTuple):
    """What happened in the rows of m lanes: ``[m, T]`` each."""

    reward: Tensor
    terminated: Tensor
    """bool: the episode ended, and what follows is worth nothing."""
    truncated: Tensor
    """bool: the episode was cut off, and what follows is worth ``bootstrap``."""
    bootstrap: Tensor
    """Value of the last observation of a truncated episode. Other rows may hold any finite number."""
    valid: Tensor
    """1, or 0 for a row that carries no transition."""


class VTrace(NamedTuple):
    """``[m, T]`` each. Constants: no gradient passes them if none passed the arguments."""

    target: Tensor
    """``v_s``, what the critic is to learn."""
    advantage: Tensor
    """``rho_s (r_s + gamma v_s+1 - V(x_s))``, the weight of the gradient of ``log pi(a_s | x_s)``."""
    rho: Tensor
    """``rho_s``, the truncated importance weight; 0 for a row that is not valid."""


def vtrace(
    steps: Steps,
    log_ratio: Tensor,
    value: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    rho_bar: float,
    c_bar: float,
) -> VTrace:
    """V-trace targets and policy-gradient advantages.

        v_s     = V(x_s) + delta_s + gamma c_s (v_s+1 - V(x_s+1))
        delta_s = rho_s (r_s + gamma V(x_s+1) - V(x_s))
        rho_s   = min(rho_bar, pi / mu),   c_s = lambda min(c_bar, pi / mu)

    A terminated row has ``V(x_s+1) = 0``, a truncated row its ``bootstrap``. Both end the sum, and so does a row that
    is not valid. The last row is followed by ``value[:, T]``.

    With lambda below 1, the advantage uses ``V(x_s+1) + lambda (v_s+1 - V(x_s+1))`` in place of ``v_s+1``, as rlax
    does. Then both results are those of generalised advantage estimation if ``pi = mu`` and neither bound is below 1.

    Args:
        steps: what happened.
        log_ratio: ``log pi(a | x) - log mu(a | x)`` ``[m, T]``: pi is the current policy, mu the one that acted.
        value: ``V(x)`` of the current critic, ``[m, T + 1]``.
        gamma: discount.
        gae_lambda: lambda; less than 1: less variance, more bias.
        rho_bar: largest weight of a row's error. It decides which policy's values are learned.
        c_bar: largest weight of later errors. It decides how fast the values are learned.

    Raises:
        ValueError: the shapes do not fit each other.

    Source: Espeholt et al. 2018, equations 1 and 4 and remark 2, https://arxiv.org/abs/1802.01561.
    """
    if value.shape != (log_ratio.shape[0], log_ratio.shape[1] + 1):
        raise ValueError(f"values of shape {tuple(value.shape)} do not fit ratios of shape {tuple(log_ratio.shape)}")
    here, ended = value[:, :-1], steps.terminated | steps.truncated
    after = torch.where(steps.truncated, steps.bootstrap, value[:, 1:]).masked_fill(steps.terminated, 0.0)
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=rho_bar) * steps.valid
    trace = gae_lambda * (ratio.clamp(max=c_bar) * steps.valid).masked_fill(ended, 0.0)
    error = rho * (steps.reward + gamma * after - here)
    correction = chained(error, gamma * trace)
    later = functional.pad(correction[:, 1:], (0, 1)).masked_fill(ended, 0.0)
    advantage = rho * (steps.reward + gamma * (after + gae_lambda * later) - here)
    return VTrace(here + correction, advantage, rho)


def chained(values: Tensor, decay: Tensor) -> Tensor:
    """``y_t = values_t + decay_t y_t+1`` for ``[m, T]``, with 0 behind the last column.

    Each round doubles the number of columns that a sum reaches: log2(T) rounds of whole arrays, not T small steps.
    """
    reach = 1
    while reach < values.shape[1]:
        values = values + decay * functional.pad(values[:, reach:], (0, reach))
        decay = decay * functional.pad(decay[:, reach:], (0, reach))
        reach *= 2
    return values
