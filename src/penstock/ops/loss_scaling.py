"""Loss scaling for float16, as pure functions: gradients too small for float16 are made larger, and back.

    loss' = s loss,   g = g' / s
    a number of g is infinite or NaN: no step, s <- s / 2; after ``GROWTH_STEPS`` steps in a row: s <- 2 s

Learners compute gradients while others are applied, so that several may overflow by one scale. The first halves it. The
others were found by a larger scale than the one that is left, so no step follows them, and the scale stays.

Source: Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740, section 3.2. The constants are those of
`torch.amp.GradScaler`, with which the tests compare. The `GradScaler` keeps its scale and steps an optimizer of torch;
here the scale is a part of the state.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["GROWTH_STEPS", "LossScale", "finite", "finite_or_zero"]

FACTOR = 2.0
GROWTH_STEPS = 2000
SAME = 1.5
"""A scale up to this many times as large is the same one. Less than `FACTOR`, and more than what a mean rounds."""


class LossScale(NamedTuple):
    """The scale, and the steps taken since it last changed: float32 and int64 scalars."""

    scale: Tensor
    taken: Tensor

    def after(self, taken: Tensor, used: Tensor) -> "LossScale":
        """The next one.

        Args:
            taken: whether the gradients were finite, and so a step was taken: bool scalar.
            used: the scale by which these gradients were computed: float32 scalar.
        """
        steps = self.taken + 1
        grows = steps >= GROWTH_STEPS
        grown, halved = self.scale * FACTOR, self.scale / FACTOR
        kept = torch.where(grows & grown.isfinite(), grown, self.scale)
        left = torch.where(used <= SAME * self.scale, halved, self.scale)
        return LossScale(torch.where(taken, kept, left), torch.where(taken & ~grows, steps, torch.zeros_like(steps)))


def finite(gradients: Iterable[Tensor]) -> Tensor:
    """Whether every number of these vectors is finite: bool scalar."""
    return torch.stack([gradient.isfinite().all() for gradient in gradients]).all()


def finite_or_zero(value: Tensor) -> Tensor:
    """A scalar, or 0 in place of what is infinite or NaN: the norm of gradients down which no step is taken."""
    return torch.where(value.isfinite(), value, torch.zeros_like(value))
