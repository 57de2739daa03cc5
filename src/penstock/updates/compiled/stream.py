"""Learning from a stream by compiled libraries: minibatches are gathered, many at once, into fixed buffers."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, UpdaterSettings
from penstock.ops.batch import Batch
from penstock.registry import load
from penstock.types import Array, Arrays
from penstock.updates.compiled.stepper import CompiledStepper

__all__ = ["CompiledUpdater", "build"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "CompiledUpdater":
    """The updater of a learner from a stream, compiled or taken from the cache; ``arrays`` as for the eager one."""
    torch.set_num_threads(settings.threads)
    return CompiledUpdater(load(settings.learn)(settings.spaces, settings.config), settings, arrays)


class CompiledUpdater:
    """Runs an algorithm's phases over the rows of a stream."""

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array]) -> None:
        """Lay out the buffers and compile the phases."""
        spec, device = settings.spec, torch.device(settings.device)
        self._algorithm = algorithm
        self._batch = Batch(arrays, spec.minibatch, spec.targets, device, staged=device.type != "cpu")
        self._rows = self._batch.buffers(spec.schedule.mini_batch_size)
        self._position = torch.zeros((), dtype=torch.int64, device=device)
        self._stepper = CompiledStepper(algorithm.phases, settings, {**self._rows, POSITION: self._position}, _take)
        self._stepper.prepare_steps()

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        self._stepper.load(state)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return self._stepper.arrays()

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``."""
        self._stepper.progress(progress)
        state = self.state()
        self._batch.prepare(slots, lambda rollout: self._algorithm.targets(state, rollout))

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices``."""
        room = len(self._rows["weight"])
        for start in range(0, len(indices), room):
            part = slice(start, start + room)
            self._batch.gather(indices[part], weights[part], self._rows)
            self._position.zero_()
            for _ in range(len(indices[part])):
                self._stepper.step_here()

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._stepper.metrics()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        for slot in slots:
            self.load(self._algorithm.statistics(self.state(), self._batch.rollout(slot)))


POSITION = "position"
"""Among the rows: which of the gathered minibatches comes next. Libraries count it up, so that calls need nothing."""


def _take(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    position = rows[POSITION]
    at = position.view(1)
    minibatch = {name: rows[name].index_select(0, at).squeeze(0) for name in rows.keys() - {POSITION}}
    position.add_(1)
    return minibatch
