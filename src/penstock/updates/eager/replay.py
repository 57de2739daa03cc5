"""Learning from a table, one torch call at a time: both gradients and steps, only gradients, or only steps."""

import torch

from penstock.algorithm import Algorithm
from penstock.updates.building import algorithm_of
from penstock.updates.eager.stepper import EagerStepper
from penstock.updates.inbox import Inbox
from penstock.updates.replay_learning import GradientApplier, ReplayFollower, ReplayLearner
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import Exchange, HandOn

__all__ = ["build_applier", "build_follower", "build_replay"]


def build_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> ReplayLearner:
    """The updater of a learner from a table; ``exchange`` is how it agrees with other learners, if there are any."""
    algorithm = algorithm_of(settings)
    return ReplayLearner(EagerStepper(algorithm.phases, settings), _inbox(settings, algorithm), exchange)


def build_follower(settings: UpdaterSettings, hand_on: HandOn) -> ReplayFollower:
    """The updater of a learner that hands its gradients on."""
    algorithm = algorithm_of(settings)
    return ReplayFollower(EagerStepper(algorithm.phases, settings), _inbox(settings, algorithm), hand_on)


def build_applier(settings: UpdaterSettings) -> GradientApplier:
    """The applier of gradients that other learners have computed."""
    return GradientApplier(EagerStepper(algorithm_of(settings).phases, settings))


def _inbox(settings: UpdaterSettings, algorithm: Algorithm) -> Inbox:
    fields, size = settings.spec.sampled(settings.spaces), settings.spec.schedule.mini_batch_size
    return Inbox(
        fields, size, settings.accumulate, torch.device(settings.device), across_minibatch=algorithm.across_minibatch
    )
