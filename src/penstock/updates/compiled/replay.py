"""Learning from a table by compiled libraries. Each minibatch is sampled into fixed buffers, or copied there.

For a single learner all phases that are due are one library. If learners agree on gradients, or a minibatch has parts,
each phase is two libraries: one computes its gradients, the other applies them.
"""

import torch
from torch import Tensor

from penstock.algorithm import Algorithm
from penstock.updates.building import algorithm_of
from penstock.updates.compiled.program import across_minibatch_of
from penstock.updates.compiled.stepper import CompiledStepper
from penstock.updates.inbox import Inbox
from penstock.updates.replay_learning import GradientApplier, ReplayFollower, ReplayLearner
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import Exchange, HandOn

__all__ = ["build_applier", "build_follower", "build_replay"]


def build_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> ReplayLearner:
    """The updater of a learner from a table; ``exchange`` is how it agrees with other learners, if there are any."""
    algorithm, rows = algorithm_of(settings), _rows(settings)
    stepper = _stepper(settings, algorithm, rows)
    if exchange is None and settings.accumulate == 1:
        stepper.prepare_steps()
    else:
        stepper.prepare_parts()
    return ReplayLearner(stepper, _inbox(settings, algorithm, rows), exchange)


def build_follower(settings: UpdaterSettings, hand_on: HandOn) -> ReplayFollower:
    """The updater of a learner that hands its gradients on. All phases that are due are one library."""
    algorithm, rows = algorithm_of(settings), _rows(settings)
    stepper = _stepper(settings, algorithm, rows)
    stepper.prepare_gradients()
    return ReplayFollower(stepper, _inbox(settings, algorithm, rows), hand_on)


def build_applier(settings: UpdaterSettings) -> GradientApplier:
    """The applier of gradients that other learners have computed: one library for each phase."""
    stepper = _stepper(settings, algorithm_of(settings), _rows(settings))
    stepper.prepare_applies()
    return GradientApplier(stepper)


def _rows(settings: UpdaterSettings) -> dict[str, Tensor]:
    """The buffers from which libraries read a minibatch."""
    device, size = torch.device(settings.device), settings.spec.schedule.mini_batch_size
    return {
        spec.name: torch.zeros((size, *spec.shape), dtype=getattr(torch, spec.dtype), device=device)
        for spec in settings.spec.sampled(settings.spaces)
    }


def _stepper(settings: UpdaterSettings, algorithm: Algorithm, rows: dict[str, Tensor]) -> CompiledStepper:
    """Unless minibatches have parts, the libraries include ``across_minibatch``, which needs all of their rows."""
    take = across_minibatch_of(dict, algorithm.across_minibatch) if settings.accumulate == 1 else dict
    return CompiledStepper(algorithm.phases, settings, rows, take)


def _inbox(settings: UpdaterSettings, algorithm: Algorithm, rows: dict[str, Tensor]) -> Inbox:
    fields, size = settings.spec.sampled(settings.spaces), settings.spec.schedule.mini_batch_size
    across_minibatch = algorithm.across_minibatch if settings.accumulate > 1 else None
    return Inbox(
        fields, size, settings.accumulate, torch.device(settings.device), across_minibatch=across_minibatch, rows=rows
    )
