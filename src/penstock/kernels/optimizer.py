"""How native updates turn gradients into steps, as plain values. Imports no native code."""

from typing import Literal, NamedTuple

__all__ = ["COUNTING", "MIN_EPSILON", "MOMENTS", "Optimizer", "OptimizerName"]

MIN_EPSILON = 1e-30
"""Smallest epsilon. It is above 0 in float32. So it avoids 0 / 0 where a gradient has always been 0: in elements that
pad a vector, and in parameters that nothing has used yet."""

OptimizerName = Literal["adam", "adamw", "sgd", "rmsprop", "muon"]
COUNTING = frozenset({"adam", "adamw", "muon"})
"""Optimizers whose steps are counted in the state, as ``adam_step``."""
MOMENTS: dict[OptimizerName, tuple[str, ...]] = {
    "adam": ("adam_m", "adam_v"),
    "adamw": ("adam_m", "adam_v"),
    "sgd": ("sgd_m",),
    "rmsprop": ("rmsprop_v",),
    "muon": ("adam_m", "adam_v", "muon_m"),
}
"""The arrays that an optimizer keeps for each vector, each as long as the vector: ``<moment>.<vector>``."""


class Optimizer(NamedTuple):
    """An optimizer and its numbers. The native update reads only those that it uses."""

    name: OptimizerName
    epsilon: float
    """Added to the root (adam, adamw, muon), or inside the root (rmsprop). At least `MIN_EPSILON`."""
    momentum: float
    """Of sgd and muon."""
    weight_decay: float
    """Of adamw and muon. It shrinks the weights and biases of layers, and nothing else."""

    @property
    def moments(self) -> tuple[str, ...]:
        """Its `MOMENTS`."""
        return MOMENTS[self.name]

    @property
    def counts(self) -> bool:
        """Whether the state holds the count of its steps."""
        return self.name in COUNTING

    @property
    def safe(self) -> bool:
        """Whether the native update can take its epsilon."""
        return self.name == "sgd" or self.epsilon >= MIN_EPSILON
