"""Learning from a stream, one torch call at a time: both gradients and steps, only gradients, or only steps."""

from collections.abc import Mapping

from penstock.algorithm import Algorithm
from penstock.types import Array
from penstock.updates.batch import batch_of
from penstock.updates.building import algorithm_of
from penstock.updates.eager.stepper import EagerStepper
from penstock.updates.settings import UpdaterSettings
from penstock.updates.stream_learning import StreamFollower, StreamGradientApplier, StreamLearner
from penstock.updates.team import Exchange, HandOn

__all__ = ["EagerUpdater", "build", "build_stream_applier", "build_stream_follower"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array], exchange: Exchange | None = None) -> "EagerUpdater":
    """The updater of a learner from a stream; as `penstock.registry.UpdateBackend.stream`."""
    return EagerUpdater(algorithm_of(settings), settings, arrays, exchange)


def build_stream_follower(settings: UpdaterSettings, arrays: Mapping[str, Array], hand_on: HandOn) -> StreamFollower:
    """The updater of a learner that hands its gradients on; as `penstock.registry.UpdateBackend.stream_follower`."""
    algorithm = algorithm_of(settings)
    follower = StreamFollower(algorithm, batch_of(settings, arrays), settings, hand_on)
    follower.hold(EagerStepper(algorithm.phases, settings))
    return follower


def build_stream_applier(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> StreamGradientApplier:
    """The applier of gradients computed on rollouts; as `penstock.registry.UpdateBackend.stream_applier`."""
    algorithm = algorithm_of(settings)
    applier = StreamGradientApplier(algorithm, settings.spec.policy, batch_of(settings, arrays))
    applier.hold(EagerStepper(algorithm.phases, settings, applier.part(1)))
    return applier


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
        super().__init__(
            algorithm, settings.spec.policy, batch_of(settings, arrays), size, settings.accumulate, exchange=exchange
        )
        self.hold(EagerStepper(algorithm.phases, settings))
