"""The phase that copies arrays of the state to their targets, and the state as the targets have it. Knows no loss."""

from collections.abc import Sequence
from functools import partial

from penstock.algorithm import Gradients, Phase, Tensors

__all__ = ["copies", "of_targets"]


def copies(names: Sequence[str], every: int) -> Phase:
    """The copy of each named array ``X`` to ``target.X``, at every ``every``-th gradient step."""
    return Phase("target", _no_gradients, partial(_copied, names), every=every)


def of_targets(names: Sequence[str], state: Tensors) -> Tensors:
    """The state with ``target.X`` in place of each named array ``X``."""
    return {**state, **{name: state[f"target.{name}"] for name in names}}


def _no_gradients(state: Tensors, minibatch: Tensors, noise: Tensors) -> Gradients:
    del state, minibatch, noise
    return Gradients({}, {}, {})


def _copied(names: Sequence[str], state: Tensors, gradients: Tensors) -> Tensors:
    """The targets, as copies of the arrays."""
    del gradients
    return {f"target.{name}": state[name].clone() for name in names}
