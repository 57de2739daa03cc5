"""Learning from a stream, one torch call at a time."""

from collections.abc import Mapping, Sequence

import torch

from penstock.algorithm import Algorithm, UpdaterSettings
from penstock.ops.batch import Batch
from penstock.registry import load
from penstock.types import Array, Arrays
from penstock.updates.eager.stepper import EagerStepper

__all__ = ["EagerUpdater", "build"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "EagerUpdater":
    """The updater of a learner from a stream, whose rows are ``arrays``: field -> ``[slots, T + 1, lanes, ...]``."""
    torch.set_num_threads(settings.threads)
    return EagerUpdater(load(settings.learn)(settings.spaces, settings.config), settings, arrays)


class EagerUpdater:
    """Runs an algorithm's phases over the rows of a stream."""

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array]) -> None:
        spec, device = settings.spec, torch.device(settings.device)
        self._algorithm = algorithm
        self._batch = Batch(arrays, spec.minibatch, spec.targets, device, staged=device.type != "cpu")
        self._stepper = EagerStepper(algorithm.phases, settings)
        self._rows = self._batch.buffers(spec.schedule.mini_batch_size)

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
        names = list(self._rows)
        room = len(self._rows["weight"])
        for start in range(0, len(indices), room):
            part = slice(start, start + room)
            self._batch.gather(indices[part], weights[part], self._rows)
            columns = [values[: len(indices[part])].unbind() for values in self._rows.values()]
            for values, weight in zip(zip(*columns, strict=True), weights[part].sum(1).tolist(), strict=True):
                self._stepper.step([dict(zip(names, values, strict=True))], [weight], None)

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._stepper.metrics()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        for slot in slots:
            self.load(self._algorithm.statistics(self.state(), self._batch.rollout(slot)))
