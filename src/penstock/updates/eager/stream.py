"""Learning from a stream, one torch call at a time."""

from collections.abc import Mapping

import torch

from penstock.algorithm import Algorithm, UpdaterSettings
from penstock.algorithm_package import load_functions
from penstock.types import Array
from penstock.updates.batch import batch_of
from penstock.updates.eager.stepper import EagerStepper
from penstock.updates.stream_learning import StreamLearner

__all__ = ["EagerUpdater", "build"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "EagerUpdater":
    """The updater of a learner from a stream; ``arrays``: field -> ``[slots, T + 1, lanes, ...]``."""
    torch.set_num_threads(settings.threads)
    return EagerUpdater(load_functions(settings.learn)(settings.spaces, settings.config), settings, arrays)


class EagerUpdater(StreamLearner):
    """Runs an algorithm's phases over the rows of a stream."""

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array]) -> None:
        size = settings.spec.schedule.mini_batch_size
        super().__init__(algorithm, batch_of(settings, arrays), size, settings.accumulate)
        self._stepper = EagerStepper(algorithm.phases, settings)
