"""Learning from a stream by compiled libraries. Many minibatches at once are gathered into fixed buffers."""

from collections.abc import Mapping

import torch
from torch import Tensor

from penstock.algorithm import Algorithm
from penstock.types import Array
from penstock.updates.batch import batch_of
from penstock.updates.building import algorithm_of
from penstock.updates.compiled.program import across_minibatch_of
from penstock.updates.compiled.stepper import CompiledStepper
from penstock.updates.settings import UpdaterSettings
from penstock.updates.stream_learning import StreamFollower, StreamGradientApplier, StreamLearner
from penstock.updates.team import Exchange, HandOn

__all__ = ["CompiledParts", "CompiledUpdater", "build", "build_stream_applier", "build_stream_follower"]


def build(
    settings: UpdaterSettings, arrays: Mapping[str, Array], exchange: Exchange | None = None
) -> "CompiledUpdater | CompiledParts":
    """The updater of a learner from a stream; as `penstock.registry.UpdateBackend.stream`."""
    algorithm = algorithm_of(settings)
    if settings.accumulate == 1 and exchange is None:
        return CompiledUpdater(algorithm, settings, arrays)
    return CompiledParts(algorithm, settings, arrays, exchange)


def build_stream_follower(settings: UpdaterSettings, arrays: Mapping[str, Array], hand_on: HandOn) -> StreamFollower:
    """The updater of a learner that hands its gradients on; as `penstock.registry.UpdateBackend.stream_follower`."""
    algorithm = algorithm_of(settings)
    follower = StreamFollower(algorithm, batch_of(settings, arrays), settings, hand_on)
    stepper = CompiledStepper(algorithm.phases, settings, follower.part(_size(settings)), dict)
    stepper.prepare_gradients()
    follower.hold(stepper)
    return follower


def build_stream_applier(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> StreamGradientApplier:
    """The applier of gradients computed on rollouts; as `penstock.registry.UpdateBackend.stream_applier`."""
    algorithm = algorithm_of(settings)
    applier = StreamGradientApplier(algorithm, settings.spec.policy, batch_of(settings, arrays))
    stepper = CompiledStepper(algorithm.phases, settings, applier.part(_size(settings)), dict)
    stepper.prepare_applies()
    applier.hold(stepper)
    return applier


def _size(settings: UpdaterSettings) -> int:
    """Units of a part of a minibatch."""
    return settings.spec.schedule.mini_batch_size


class CompiledUpdater(StreamLearner):
    """Runs an algorithm's phases over the rows of a stream, with one library call for each minibatch."""

    _stepper: CompiledStepper

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array]) -> None:
        """Lay out the buffers and compile the phases."""
        super().__init__(
            algorithm, settings.spec.policy, batch_of(settings, arrays), settings.spec.schedule.mini_batch_size, parts=1
        )
        self._position = torch.zeros((), dtype=torch.int64, device=settings.device)
        rows = {**self._rows, POSITION: self._position}
        self._stepper = CompiledStepper(
            algorithm.phases, settings, rows, across_minibatch_of(_take, algorithm.across_minibatch)
        )
        self._stepper.prepare_steps()

    def _learn(self, weights: Array) -> None:
        """Take a gradient step by each gathered minibatch. Libraries read its weights themselves."""
        self._position.zero_()
        for _ in weights:
            self._stepper.step_here()


class CompiledParts(StreamLearner):
    """Runs the phases over minibatches in parts, or together with other learners.

    Each part is copied into the libraries' buffers.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        settings: UpdaterSettings,
        arrays: Mapping[str, Array],
        exchange: Exchange | None,
    ) -> None:
        """Lay out the buffers and compile the phases."""
        super().__init__(
            algorithm,
            settings.spec.policy,
            batch_of(settings, arrays),
            _size(settings),
            settings.accumulate,
            exchange=exchange,
        )
        stepper = CompiledStepper(algorithm.phases, settings, self.part(_size(settings)), dict)
        stepper.prepare_parts()
        self.hold(stepper)


POSITION = "position"
"""Name of a buffer among the rows: index of the next gathered minibatch. The libraries count it on themselves."""


def _take(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    position = rows[POSITION]
    at = position.view(1)
    minibatch = {name: rows[name].index_select(0, at).squeeze(0) for name in rows.keys() - {POSITION}}
    position.add_(1)
    return minibatch
