"""The scale of a phase's loss in float16: which one it is, and that a step down gradients that overflowed is left out.

Its mathematics: `penstock.ops.loss_scaling`. The names of its arrays: `spec.py`. Chooses no precision.
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
    """The phase, but where the state has a scale for its loss, a step down gradients that overflowed is left out.

    The step is left out as a whole: everything that it would change stays as it was, targets as well, and the scale
    halves. A phase is what learners agree on and apply at once. So all of them leave out the same step.

    The scale by which gradients were found is one of them, under its own name: where several wait to be applied, only
    the first that overflowed halves it.

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
