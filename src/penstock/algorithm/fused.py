"""What ``fused.py`` of an algorithm gives: the same without torch, where native code updates a state in place."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from penstock.algorithm.functions import Tensors
from penstock.kernels.steps import FusedPhase, Minibatches, StepKeys
from penstock.types import Array

__all__ = ["Fused", "FusedReplay", "FusedReplayUpdate", "FusedUpdate", "StreamShape"]


class StreamShape(NamedTuple):
    """The shape of a stream's arrays: ``[slots, steps + 1, lanes, ...]``."""

    slots: int
    steps: int
    lanes: int

    @property
    def rows(self) -> int:
        """The number of flat rows."""
        return self.slots * (self.steps + 1) * self.lanes


class FusedUpdate(Protocol):
    """Many minibatches in one native call. Holds packed rows and sums of metrics, but no state.

    A learner that shares its minibatches with others takes one at a time: `across_minibatch`, `gradients`,
    `apply`.
    """

    phase: str
    """Name of its one phase, as in ``learn.py``."""

    def pack(self, state: Tensors, rows: Tensors, first: int, count: int) -> None:
        """Copy flat rows ``first .. first + count - 1`` of a batch. Call it before the batch's first minibatch.

        Args:
            state: holds the running statistics.
            rows: the fields of a minibatch, ``[rows, ...]``. Rows that are not valid may hold anything. If the unit is
                a lane, ``valid`` is one of the fields.
            first: first flat row.
            count: number of rows. If the unit is a lane, the row behind each lane is among them.
        """
        ...

    def run(self, state: Tensors, indices: Array, weights: Array) -> None:
        """Run one gradient step for each minibatch ``indices[i]`` of ``[n, m]``, in place. The GIL is released.

        ``indices`` are flat rows, or row 0 of whole lanes.
        """
        ...

    def across_minibatch(self, indices: Array, mean: Callable[[Array], float]) -> Any:  # noqa: ANN401  (for `gradients` alone)
        """What `gradients` must know of all rows of a minibatch, such as the moments of its advantages.

        Args:
            indices: ``[m]``, of all rows of the minibatch that are known here.
            mean: ``(values [m]) -> scalar``, the mean by weight over all rows, also over those of other learners.
        """
        ...

    def gradients(self, state: Tensors, indices: Array, weights: Array, across: Any) -> tuple[Tensors, float]:  # noqa: ANN401
        """The gradients of a minibatch or of a share of it, and the sum of its weights. The GIL is released.

        Args:
            state: parameters.
            indices: ``[m]``, of the rows or lanes of the share.
            weights: ``[m]``; 0 is padding. The gradients of padding alone are zero.
            across: the result of `across_minibatch`.

        Returns:
            Network -> flat gradient, the mean over the share, valid until the next call; and its weight in rows.
        """
        ...

    def apply(self, state: Tensors, gradients: Tensors) -> None:
        """Take a step down these gradients, in place. The GIL is released."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call; empty if there were none."""
        ...


class Fused(NamedTuple):
    """Result of ``build(spaces, config)`` in ``fused.py``: the algorithm without torch, on NumPy arrays.

    The state has the arrays of ``AlgorithmSpec.state``. So this and `Algorithm` can load each other's checkpoints.
    """

    targets: Callable[[Tensors, Tensors], Tensors]
    statistics: Callable[[Tensors, Tensors], Tensors]
    update: Callable[[StreamShape, int], FusedUpdate]
    """``(shape, threads) -> FusedUpdate`` for the rows of such a stream."""


class FusedReplayUpdate(Protocol):
    """All phases of gradient steps from a table in native calls. It holds the state. Each call releases the GIL.

    Threads: 1 or 2; the results are the same bit for bit.
    """

    @property
    def phases(self) -> tuple[FusedPhase, ...]:
        """The phases in order."""
        ...

    gradient_steps: int
    """Gradient steps so far. They decide which phases are due, and are a key of the noise."""

    def load(self, state: Tensors) -> None:
        """Take a whole state, or some of its arrays."""
        ...

    def store(self, state: Tensors) -> None:
        """Write the state into these arrays."""
        ...

    def bind(self, minibatch: Tensors, priority: Array | None) -> None:
        """Learn from these arrays from now on; ``priority`` ``[m]`` is written. The caller keeps them alive."""
        ...

    def run(self, minibatches: Minibatches, keys: StepKeys, steps: int, progress: float, threads: int) -> int:
        """Sample a minibatch into the bound arrays, take a gradient step and rank its rows: ``steps`` times.

        Returns:
            How many steps were taken.

        Raises:
            ResourceError: no row can be sampled.
            BadDataError: a priority is infinite or NaN.
        """
        ...

    def step(self, progress: float, threads: int) -> None:
        """Take one gradient step with the minibatch as it is: every phase that is due."""
        ...

    def gradients(self, phase: int, threads: int) -> Mapping[str, Array]:
        """The gradients of one phase over the minibatch; valid until the next call."""
        ...

    def apply(self, phase: int, gradients: Tensors, progress: float, threads: int) -> None:
        """Step the phase's vectors by these gradients."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call; empty if there were none."""
        ...


class FusedReplay(NamedTuple):
    """Result of ``build(spaces, config)`` in ``fused.py`` of an algorithm that learns from a table.

    The state has the arrays of ``AlgorithmSpec.state``. So this and `Algorithm` can load each other's checkpoints.
    """

    update: Callable[[int, int], FusedReplayUpdate]
    """``(seed, first_row) -> FusedReplayUpdate``: the run's seed; the number of this learner's first row of noise."""
