"""The scale of a loss in float16: finds it in the state, and leaves out a step whose gradients have overflowed.

`penstock.ops.loss_scaling` has the mathematics, `spec.py` the names of the arrays. Chooses no precision.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from penstock.algorithm import Gradients, Phase, Tensors
from penstock.algorithms.optimizer.spec import scale_names
from penstock.ops.loss_scaling import LossScale, finite, finite_or_zero

__all__ = ["scale_of", "scaled"]


def scale_of(state: Tensors, loss: str = "") -> Tensor | None:
    """What the loss is multiplied with on its way back: float32 scalar. ``None``: the state has no scale for it.

    Args:
        state: of the algorithm.
        loss: as for `penstock.algorithms.optimizer.spec.scale_names`.
    """
    scale: Tensor | None = state.get(scale_names(loss)[0])
    return scale


def scaled(phase: Phase, loss: str = "") -> Phase:
    """The same phase, but it takes no step if a gradient has overflowed. No effect if the state has no scale for it.

    - No step: all arrays that the step would change stay as they are, target networks included. The scale halves.
    - Learners agree on the gradients of a phase and apply them at once. So all of them leave out the same step.
    - The scale with which gradients were computed travels among them, under its own name. If several gradients wait to
      be applied, only the first one that has overflowed halves the scale.

    Args:
        phase: its gradients are divided by the scale already, as `penstock.torch_networks.gradients.gradients_of` does.
        loss: as for `penstock.algorithms.optimizer.spec.scale_names`.
    """
    return phase._replace(
        gradients=partial(_measured, phase.gradients, loss), apply=partial(_taken_if_finite, phase.apply, loss)
    )


def _measured(
    gradients: Callable[[Tensors, Tensors, Tensors], Gradients],
    loss: str,
    state: Tensors,
    minibatch: Tensors,
    noise: Tensors,
) -> Gradients:
    """The gradients, with their scale, also as a metric. A norm that overflowed counts as 0: no step follows it."""
    found, scale = gradients(state, minibatch, noise), scale_of(state, loss)
    if scale is None:
        return found
    # A copy, because a step may overwrite the state in place before metrics are read.
    used = scale.clone()
    metrics = {**found.metrics, f"{loss}_loss_scale" if loss else "loss_scale": used}
    if "grad_norm" in metrics:
        metrics["grad_norm"] = finite_or_zero(metrics["grad_norm"])
    return found._replace(gradients={**found.gradients, scale_names(loss)[0]: used}, metrics=metrics)


def _taken_if_finite(
    apply: Callable[[Tensors, Tensors], Tensors], loss: str, state: Tensors, gradients: Tensors
) -> Tensors:
    """What ``apply`` changes if all gradients are finite, else these arrays as they are; and the next scale."""
    scale, names = scale_of(state, loss), scale_names(loss)
    if scale is None:
        return apply(state, gradients)
    found = {name: values for name, values in gradients.items() if name != names[0]}
    sound = finite(found.values())
    kept = {name: torch.where(sound, values, state[name]) for name, values in apply(state, found).items()}
    after = LossScale(scale, state[names[1]]).after(sound, gradients[names[0]])
    return {**kept, **dict(zip(names, after, strict=True))}
