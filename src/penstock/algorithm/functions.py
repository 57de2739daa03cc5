"""What ``learn.py`` of an algorithm gives: pure functions, and the phases of a gradient step. Imports no torch."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from penstock.types import NoiseSpec

__all__ = ["Algorithm", "Gradients", "Phase", "Tensors"]

Tensors: TypeAlias = Mapping[str, Any]
"""Named tensors of one framework: torch in ``learn.py``, NumPy in ``fused.py``."""


class Gradients(NamedTuple):
    """Result of ``gradients`` for one minibatch."""

    gradients: Tensors
    """Network name -> flat gradient."""
    metrics: Tensors
    """Name -> scalar. A report names them ``loss/...``: ``loss/entropy``, and ``loss/policy`` for ``policy_loss``."""
    per_row: Tensors
    """Name -> ``[m]``, such as new priorities. May be empty."""


class Phase(NamedTuple):
    """One gradient step of an update. An algorithm has an ordered list of phases (SAC: critic, actor)."""

    name: str
    gradients: Callable[[Tensors, Tensors, Tensors], Gradients]
    """``(state, minibatch, noise) -> Gradients``. Pure, compiled. ``minibatch["weight"]`` is 0 for padding rows."""
    apply: Callable[[Tensors, Tensors], Tensors]
    """``(state, gradients) -> changed arrays of the state``. Pure, compiled. ``state["progress"]`` is in [0, 1]."""
    every: int = 1
    """Run at every n-th gradient step of the run (TD3 delays its actor). If it is not 1, ``AlgorithmSpec.state`` needs
    ``gradient_steps``, int64: the updater counts there, so that a resumed run delays the same steps."""
    noise: tuple[tuple[str, NoiseSpec], ...] = ()
    """Noise inputs of ``gradients``, for each minibatch row: float32 ``[m, ...]``, generated from (seed, gradient step,
    phase, row). Its distributions are ``normal`` and ``uniform``."""


def _nothing(minibatch: Tensors, mean: Callable[[Any], Any]) -> Tensors:
    """Default of ``Algorithm.across_minibatch``: no field depends on the other rows of its minibatch."""
    del minibatch, mean
    return {}


class Algorithm(NamedTuple):
    """Result of ``build(spaces, config)`` in ``learn.py``."""

    act: Callable[[Tensors, Tensors], Tensors]
    """``(published, inputs) -> outputs``. Inputs: observation fields ``[n, ...]``, ``noise``, ``explore``. Pure."""
    targets: Callable[[Tensors, Tensors], Tensors]
    """``(state, rollout) -> target fields [T, B]``. ``rollout``: NumPy views of one slot, ``[T + 1, B, ...]``. Pure."""
    statistics: Callable[[Tensors, Tensors], Tensors]
    """``(state, rollout with its targets) -> changed statistics``. Called for each slot, in lane order, after
    ``targets`` and before the phases. Statistics of values change at once, all others after the phases. Pure."""
    phases: tuple[Phase, ...]
    recompute: Callable[[Tensors, Tensors], Tensors] | None = None
    """``(state, rollout) -> fields [T + 1, B]`` under the current parameters, for ``targets``, which finds them in the
    rollout. Called once before an update's first gradient step, for all its lanes, on the learner's device. Pure.
    ``None``: the rollout has all that ``targets`` needs."""
    across_minibatch: Callable[[Tensors, Callable[[Any], Any]], Tensors] = _nothing
    """``(minibatch, mean) -> changed fields [m]``: fields that depend on all rows of a minibatch, such as advantages
    that are normalised by their mean and deviation. ``mean(values [n]) -> scalar`` is the mean by ``weight`` over all
    rows, also over those of other learners. Called once for each minibatch, before the phases. Pure, compiled. A phase
    takes only weighted means over rows. So a minibatch's gradient is the weighted mean of its parts' gradients."""
