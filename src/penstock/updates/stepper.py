"""What goes through the phases of gradient steps: eager or compiled, for learners from a stream and from a table."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from torch import Tensor

from penstock.types import Array, Arrays
from penstock.updates.team import Exchange, HandOn

__all__ = ["Parts", "Stepper"]

Parts: TypeAlias = Sequence[Mapping[str, Tensor]]
"""The parts of a minibatch: field -> ``[m, ...]`` each."""


class Stepper(Protocol):
    """Holds a state on its device, and goes through the phases of gradient steps."""

    @property
    def count(self) -> int:
        """Gradient steps so far."""
        ...

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        ...

    def arrays(self) -> Arrays:
        """The state's named arrays on the CPU."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """The state's named arrays on its device; valid until the next call that changes the state."""
        ...

    def progress(self, progress: float) -> None:
        """How far the run is, in [0, 1]."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        ...

    def step(self, parts: Parts, weights: Sequence[float], exchange: Exchange | None) -> Arrays:
        """Take one gradient step: each phase that is due, over all parts. Returns what the phases compute for each row.

        Args:
            parts: field -> ``[m, ...]`` each.
            weights: the sum of each part's ``weight``.
            exchange: how several learners agree; ``None``: this learner is alone.
        """
        ...

    def hand_on(self, parts: Parts, weights: Sequence[float], hand_on: HandOn) -> Arrays:
        """Hand on the gradients of one step, all from the current state. Returns what the phases compute for each row.

        Args:
            parts: field -> ``[m, ...]`` each.
            weights: the sum of each part's ``weight``.
            hand_on: takes the gradients of a phase.
        """
        ...

    def apply(self, gradients: Mapping[str, Mapping[str, Array]]) -> None:
        """Take one gradient step: phases apply these gradients. Phases that never have any run when they are due."""
        ...
