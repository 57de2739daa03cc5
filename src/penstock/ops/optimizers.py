"""Optimizer steps on flat vectors, as pure functions. Holds no state: moments are arguments and results."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Adam", "adam", "clip_scale", "decayed", "global_norm", "muon", "orthogonalised", "polyak", "rmsprop", "sgd"]

BETA1, BETA2 = 0.9, 0.999
"""Decay rates of Adam's moments. No algorithm here needs other ones."""
DECAY = 0.99
"""Decay rate of RMSprop's mean square."""
TINY = torch.finfo(torch.float32).tiny
"""1.2e-38. Processors are slow with smaller numbers (denormals)."""


def global_norm(gradients: Iterable[Tensor]) -> Tensor:
    """Euclidean norm over all vectors together: scalar."""
    return torch.stack([torch.dot(gradient, gradient) for gradient in gradients]).sum().sqrt()


def clip_scale(gradients: Iterable[Tensor], max_norm: float) -> Tensor:
    """The factor, at most 1, that brings the global norm down to ``max_norm``.

    Source: Pascanu et al. 2013, https://arxiv.org/abs/1211.5063. The 1e-6 keeps a zero gradient zero.
    """
    return (max_norm / (global_norm(gradients) + 1e-6)).clamp(max=1.0)


class Adam(NamedTuple):
    """A parameter vector and Adam's two moments, all ``[n]``."""

    parameter: Tensor
    m: Tensor
    v: Tensor


def adam(at: Adam, gradient: Tensor, step: Tensor, lr: Tensor | float, epsilon: float) -> Adam:
    """One step of Adam with bias correction.

    ``m = b1 m + (1 - b1) g``, ``v = b2 v + (1 - b2) g^2``,
    ``p -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)``, with ``b1 = 0.9`` and ``b2 = 0.999``.

    Args:
        at: parameters and moments before the step.
        gradient: ``[n]``.
        step: t, counted from 1; int64 scalar.
        lr: learning rate; a number or a float64 scalar.
        epsilon: added to the root.

    Moments below ``TINY`` become 0. The moments of weights without gradient halve every seven steps. Once a quarter of
    them was below ``TINY``, a step took 128 us instead of 18 (DQN on CartPole-v1, two layers of 128).

    Source: Kingma and Ba 2015, algorithm 1, https://arxiv.org/abs/1412.6980.
    """
    t = step.to(torch.float64)
    # Use exp: the compiler computes this scalar once. It would compute a plain power again for every eight elements
    # (57 against 10 us for 9,000 parameters).
    bias = 1.0 - torch.exp(t * math.log(BETA1))
    root = (1.0 - torch.exp(t * math.log(BETA2))).sqrt()
    m = _without_tiny(at.m.lerp(gradient, 1.0 - BETA1))
    v = _without_tiny(at.v.lerp(gradient * gradient, 1.0 - BETA2))
    # Numerator and denominator are both multiplied by the root, which saves one pass over the vector.
    change = m * (lr * root / bias) / (v.sqrt() + epsilon * root)
    return Adam(at.parameter - change, m, v)


def _without_tiny(values: Tensor) -> Tensor:
    return torch.where(values.abs() < TINY, 0.0, values)


def rmsprop(
    parameter: Tensor, gradient: Tensor, v: Tensor, lr: Tensor | float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """One step of RMSprop: the new parameter and mean square, both ``[n]``. ``epsilon`` is inside the root, as in A3C.

    ``v = d v + (1 - d) g^2``, ``p -= lr g / sqrt(v + eps)``, with ``d = 0.99``.

    Source: Mnih et al. 2016, equations 8 and 9, https://arxiv.org/abs/1602.01783.
    """
    v = v.lerp(gradient.square(), 1.0 - DECAY)
    return parameter - lr * gradient / (v + epsilon).sqrt(), v


def sgd(parameter: Tensor, gradient: Tensor, m: Tensor, lr: Tensor | float, momentum: float) -> tuple[Tensor, Tensor]:
    """One step of gradient descent with momentum: the new parameter and the sum of gradients, both ``[n]``.

    ``m = momentum m + g``, ``p -= lr m``. Sums below ``TINY`` become 0.

    Source: Sutskever et al. 2013, equations 1 and 2, https://proceedings.mlr.press/v28/sutskever13.html. There the step
    size is inside the sum; here a learning rate that falls also shrinks the steps that are taken again.
    """
    m = _without_tiny(momentum * m + gradient)
    return parameter - lr * m, m


NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of a step of `orthogonalised`. They bring small singular values up fast, and all to about 0.7 to 1.2."""
NEWTON_SCHULZ_STEPS = 5


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices ``[k, r, c]`` with the same singular vectors, and singular values of about 1 in place of their own.

    ``X = M / |M|``, then five times ``X = a X + b (X X^T) X + c (X X^T)^2 X``.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.square().sum((1, 2), keepdim=True).sqrt() + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.mT if tall else x


def muon(parameter: Tensor, gradient: Tensor, m: Tensor, lr: Tensor | float, momentum: float) -> tuple[Tensor, Tensor]:
    """One step of Muon for weight matrices: the new parameter and the sum of gradients, all ``[k, r, c]``.

    ``m = momentum m + g``, ``p -= 0.2 sqrt(max(r, c)) lr orthogonalised(g + momentum m)``.

    The factor makes a step as long as one of Adam, so that both can share a learning rate: Liu et al. 2025, section
    2.2, https://arxiv.org/abs/2502.16982.
    """
    m = _without_tiny(momentum * m + gradient)
    length = 0.2 * math.sqrt(max(parameter.shape[1:]))
    return parameter - lr * length * orthogonalised(gradient + momentum * m), m


def decayed(parameter: Tensor, count: int, amount: Tensor | float) -> Tensor:
    """``[n]`` with the first ``count`` numbers shrunk: ``p -= amount p``. AdamW does that before the step of Adam.

    Source: Loshchilov and Hutter 2019, algorithm 2, https://arxiv.org/abs/1711.05101, with ``amount`` the learning rate
    times the weight decay.
    """
    kept = parameter[:count] * (1.0 - amount)
    return kept if count == len(parameter) else torch.cat([kept, parameter[count:]])


def polyak(target: Tensor, parameter: Tensor, tau: float) -> Tensor:
    """``(1 - tau) target + tau parameter``, ``[n]``: the new target. Source: Lillicrap et al. 2016, algorithm 1."""
    return target.lerp(parameter, tau)
