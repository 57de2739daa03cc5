"""Learning from a table, one torch call at a time: gradients and steps, or one without the other."""

import torch

from penstock.algorithm import UpdaterSettings
from penstock.registry import load
from penstock.updates.contract import Exchange, HandOn
from penstock.updates.eager.stepper import EagerStepper
from penstock.updates.inbox import Inbox
from penstock.updates.learning import Applier, Finder, Learner

__all__ = ["build_applier", "build_finder", "build_replay"]


def build_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> Learner:
    """The updater of a learner from a table; ``exchange`` is how it agrees with others, if there are any."""
    return Learner(_stepper(settings), _inbox(settings), exchange)


def build_finder(settings: UpdaterSettings, hand_on: HandOn) -> Finder:
    """The updater of a learner from a table that hands its gradients on."""
    return Finder(_stepper(settings), _inbox(settings), hand_on)


def build_applier(settings: UpdaterSettings) -> Applier:
    """What steps by gradients that others have found."""
    return Applier(_stepper(settings))


def _stepper(settings: UpdaterSettings) -> EagerStepper:
    torch.set_num_threads(settings.threads)
    return EagerStepper(load(settings.learn)(settings.spaces, settings.config).phases, settings)


def _inbox(settings: UpdaterSettings) -> Inbox:
    fields, size = settings.spec.drawn(settings.spaces), settings.spec.schedule.mini_batch_size
    return Inbox(fields, size, settings.accumulate, torch.device(settings.device))
