"""Learning from a stream, one torch call at a time."""

from collections.abc import Mapping, Sequence

import torch

from penstock.algorithm import Algorithm, UpdaterSettings
from penstock.algorithm_package import load_functions
from penstock.types import Array
from penstock.updates.batch import batch_of
from penstock.updates.contract import Exchange, HandOn
from penstock.updates.eager.stepper import EagerStepper
from penstock.updates.learning import Parts
from penstock.updates.stream_learning import StreamLearner

__all__ = ["EagerStreamFinder", "EagerUpdater", "build", "build_stream_finder"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array], exchange: Exchange | None = None) -> "EagerUpdater":
    """The updater of a learner from a stream; as `penstock.registry.UpdateBackend.stream`."""
    torch.set_num_threads(settings.threads)
    return EagerUpdater(load_functions(settings.learn)(settings.spaces, settings.config), settings, arrays, exchange)


def build_stream_finder(settings: UpdaterSettings, arrays: Mapping[str, Array], hand_on: HandOn) -> "EagerStreamFinder":
    """The updater of a learner that hands its gradients on; as `penstock.registry.UpdateBackend.stream_finder`."""
    torch.set_num_threads(settings.threads)
    algorithm = load_functions(settings.learn)(settings.spaces, settings.config)
    return EagerStreamFinder(algorithm, settings, arrays, hand_on)


class EagerUpdater(StreamLearner):
    """Runs an algorithm's phases over the rows of a stream."""

    def __init__(
        self,
        algorithm: Algorithm,
        settings: UpdaterSettings,
        arrays: Mapping[str, Array],
        exchange: Exchange | None = None,
    ) -> None:
        size = settings.spec.schedule.mini_batch_size
        super().__init__(algorithm, batch_of(settings, arrays), size, settings.accumulate, exchange)
        self._stepper = EagerStepper(algorithm.phases, settings)


class EagerStreamFinder(EagerUpdater):
    """Finds the gradients of an algorithm's phases and hands them on. Applies none."""

    def __init__(
        self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array], hand_on: HandOn
    ) -> None:
        super().__init__(algorithm, settings, arrays)
        self._hand_on = hand_on

    def _take(self, parts: Parts, weights: Sequence[float]) -> None:
        self._stepper.find(parts, weights, self._hand_on)
