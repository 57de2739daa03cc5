"""Plain values of native gradient steps from a table. Imports no native code."""

from typing import NamedTuple, Protocol

__all__ = ["FusedPhase", "Minibatches", "StepKeys"]


class FusedPhase(NamedTuple):
    """A phase of a native update from a table."""

    name: str
    every: int
    """It runs at every n-th gradient step of the run."""
    learned: tuple[str, ...]
    """The vectors that have a gradient in this phase; may be empty."""


class StepKeys(NamedTuple):
    """The sampling keys of gradient steps: step i of a call has (seed, number + i)."""

    seed: int
    number: int
    beta: float
    """How much importance weights make up for priorities."""


class Minibatches(Protocol):
    """Minibatches that native code samples for itself. `penstock.replay.minibatches.TableMinibatches` makes them."""

    def capsule(self) -> object:
        """What native code takes. See ``native/kernels/include/penstock/kernels/minibatches.hpp``."""
        ...
