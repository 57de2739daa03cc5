"""Gradients of a scalar with respect to flat vectors. Traceable: a traced graph contains the backward pass."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

__all__ = ["gradients_of"]

Extra = TypeVar("Extra")


def gradients_of(
    loss: Callable[[dict[str, Tensor]], tuple[Tensor, Extra]],
    state: Mapping[str, Tensor],
    names: Sequence[str],
    scale: Tensor | None = None,
) -> tuple[dict[str, Tensor], Extra]:
    """The gradient of ``loss`` with respect to each named vector, and the ``extra`` that ``loss`` returns.

    Args:
        loss: ``(state) -> (scalar, extra)``; called once, with the named vectors as leaves.
        state: named tensors; not changed.
        names: the vectors to differentiate with respect to.
        scale: what the loss is multiplied with on the way, for gradients too small for its dtype
            (`penstock.ops.loss_scaling`). The gradients are divided by it again.
    """
    leaves = {name: state[name].detach().requires_grad_() for name in names}
    with torch.enable_grad():
        value, extra = loss({**state, **leaves})
        scaled = value if scale is None else value * scale
        gradients = torch.autograd.grad(scaled, list(leaves.values()))
    if scale is not None:
        gradients = tuple(gradient / scale for gradient in gradients)
    return dict(zip(names, gradients, strict=True)), extra
