"""Learning from a stream. Packs the rows of a batch once; runs many minibatches in one call.

Changes the state in place.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.algorithm import AlgorithmSpec, Fused, StreamShape, UpdaterSettings
from penstock.algorithm_package import load_functions
from penstock.types import Array, Arrays
from penstock.updates.rows import Rows

__all__ = ["FusedUpdater", "build"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "FusedUpdater":
    """The updater of a learner from a stream; ``arrays``: field -> ``[slots, T + 1, lanes, ...]``.

    Runs on the CPU: a plan gives this backend no other device.
    """
    fused = load_functions(settings.learn)(settings.spaces, settings.config)
    return FusedUpdater(fused, settings.spec, arrays, settings.threads)


class FusedUpdater:
    """Runs an algorithm's fused update over the rows of a stream."""

    def __init__(self, fused: Fused, spec: AlgorithmSpec, arrays: Mapping[str, Array], threads: int) -> None:
        self._fused = fused
        whole = spec.unit == "lane"
        self._rows = rows = Rows(arrays, (*spec.minibatch, "valid") if whole else spec.minibatch, spec.targets)
        self._packed = rows.per_slot if whole else rows.learned_per_slot
        self._state = {part.name: np.zeros(part.shape, part.dtype) for part in spec.state}
        self._update = fused.update(StreamShape(rows.slots, rows.steps, rows.lanes), threads)

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
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
            self._update.pack(self._state, rows.flat, slot * rows.per_slot, self._packed)

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Take one gradient step for each row of ``indices``: flat rows, or row 0 of whole lanes."""
        self._update.run(self._state, indices, weights)

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._update.metrics()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        for slot in slots:
            self.load(self._fused.statistics(self._state, self._rows.rollout(slot)))
