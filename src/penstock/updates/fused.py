"""The update as native kernels, without torch: rows packed once a batch, many minibatches a call.

State is changed in place, on the CPU. Knows no algorithm beyond its fused functions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.algorithm import AlgorithmSpec, Fused
from penstock.ops.rows import Rows
from penstock.registry import load
from penstock.types import Array, Arrays, Spaces

__all__ = ["FusedUpdater", "build"]


def build(  # noqa: PLR0917
    learn: str,
    config: Any,  # noqa: ANN401
    spec: AlgorithmSpec,
    spaces: Spaces,
    arrays: Mapping[str, Array],
    device: str,
    threads: int,
) -> "FusedUpdater":
    """The updater of one learner.

    Args:
        learn: "module:attribute" of what makes the algorithm's fused functions.
        config: the algorithm's.
        spec: the algorithm's, on these spaces.
        spaces: of one lane.
        arrays: field -> ``[slots, T + 1, lanes, ...]``: the stream's rows.
        device: ``cpu``; a plan names no other for this backend.
        threads: of the native update.
    """
    del device
    return FusedUpdater(load(learn)(spaces, config), spec, arrays, threads)


class FusedUpdater:
    """Runs an algorithm's fused update over the rows of a stream."""

    def __init__(self, fused: Fused, spec: AlgorithmSpec, arrays: Mapping[str, Array], threads: int) -> None:
        self._fused = fused
        self._rows = Rows(arrays, spec.minibatch, spec.targets)
        self._state = {part.name: np.zeros(part.shape, part.dtype) for part in spec.state}
        self._update = fused.update(self._rows.count, threads)

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        for name, values in state.items():
            self._state[name][...] = values

    def state(self) -> Arrays:
        """The state's named arrays; valid until the next call."""
        return self._state

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``, and pack their rows."""
        self._state["progress"][...] = progress
        rows = self._rows
        for slot in slots:
            rows.prepare(slot, lambda rollout: self._fused.targets(self._state, rollout))
            self._update.pack(self._state, rows.flat, slot * rows.per_slot, rows.learned_per_slot)

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices``."""
        self._update.run(self._state, indices, weights)

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._update.metrics()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        for slot in slots:
            self.load(self._fused.statistics(self._state, self._rows.rollout(slot)))
