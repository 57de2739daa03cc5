"""Learning from a stream, one torch call at a time."""

from collections.abc import Mapping

import torch

from penstock.algorithm import Algorithm, UpdaterSettings
from penstock.registry import load
from penstock.types import Array
from penstock.updates.batch import Batch
from penstock.updates.eager.stepper import EagerStepper
from penstock.updates.stream_learning import StreamLearner

__all__ = ["EagerUpdater", "build"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "EagerUpdater":
    """The updater of a learner from a stream, whose rows are ``arrays``: field -> ``[slots, T + 1, lanes, ...]``."""
    torch.set_num_threads(settings.threads)
    return EagerUpdater(load(settings.learn)(settings.spaces, settings.config), settings, arrays)


class EagerUpdater(StreamLearner):
    """Runs an algorithm's phases over the rows of a stream."""

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array]) -> None:
        spec, device = settings.spec, torch.device(settings.device)
        batch = Batch(arrays, spec.minibatch, spec.targets, device, staged=device.type != "cpu")
        super().__init__(algorithm, batch, spec.schedule.mini_batch_size)
        self._stepper = EagerStepper(algorithm.phases, settings)

    def _learn(self, weights: Array) -> None:
        names = list(self._rows)
        columns = [values[: len(weights)].unbind() for values in self._rows.values()]
        for values, weight in zip(zip(*columns, strict=True), weights.sum(1).tolist(), strict=True):
            self._stepper.step([dict(zip(names, values, strict=True))], [weight], None)
