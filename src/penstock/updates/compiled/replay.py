"""Learning from a table by compiled libraries: each minibatch is drawn or put into fixed buffers.

Where a learner is alone, all phases that are due are one library; where others have a say in the gradients, or a
minibatch comes in parts, each phase is two: what finds its gradients, and its step.
"""

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, UpdaterSettings
from penstock.algorithm_package import load_functions
from penstock.updates.compiled.program import whole_of
from penstock.updates.compiled.stepper import CompiledStepper
from penstock.updates.contract import Exchange, HandOn
from penstock.updates.inbox import Inbox
from penstock.updates.learning import Applier, Finder, Learner

__all__ = ["build_applier", "build_finder", "build_replay"]


def build_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> Learner:
    """The updater of a learner from a table; ``exchange`` is how it agrees with others, if there are any."""
    algorithm, rows = _algorithm(settings), _rows(settings)
    stepper = _stepper(settings, algorithm, rows)
    if exchange is None and settings.accumulate == 1:
        stepper.prepare_steps()
    else:
        stepper.prepare_parts()
    return Learner(stepper, _inbox(settings, algorithm, rows), exchange)


def build_finder(settings: UpdaterSettings, hand_on: HandOn) -> Finder:
    """The updater of a learner from a table that hands its gradients on: all phases that are due are one library."""
    algorithm, rows = _algorithm(settings), _rows(settings)
    stepper = _stepper(settings, algorithm, rows)
    stepper.prepare_finds()
    return Finder(stepper, _inbox(settings, algorithm, rows), hand_on)


def build_applier(settings: UpdaterSettings) -> Applier:
    """What steps by gradients that others have found: a library each phase."""
    stepper = _stepper(settings, _algorithm(settings), _rows(settings))
    stepper.prepare_applies()
    return Applier(stepper)


def _rows(settings: UpdaterSettings) -> dict[str, Tensor]:
    """What the libraries read a minibatch from."""
    device, size = torch.device(settings.device), settings.spec.schedule.mini_batch_size
    return {
        spec.name: torch.zeros((size, *spec.shape), dtype=getattr(torch, spec.dtype), device=device)
        for spec in settings.spec.sampled(settings.spaces)
    }


def _algorithm(settings: UpdaterSettings) -> Algorithm:
    torch.set_num_threads(settings.threads)
    algorithm: Algorithm = load_functions(settings.learn)(settings.spaces, settings.config)
    return algorithm


def _stepper(settings: UpdaterSettings, algorithm: Algorithm, rows: dict[str, Tensor]) -> CompiledStepper:
    """A library makes of a minibatch what depends on all of its rows, unless it is given a part."""
    take = whole_of(dict, algorithm.whole) if settings.accumulate == 1 else dict
    return CompiledStepper(algorithm.phases, settings, rows, take)


def _inbox(settings: UpdaterSettings, algorithm: Algorithm, rows: dict[str, Tensor]) -> Inbox:
    fields, size = settings.spec.sampled(settings.spaces), settings.spec.schedule.mini_batch_size
    whole = algorithm.whole if settings.accumulate > 1 else None
    return Inbox(fields, size, settings.accumulate, torch.device(settings.device), whole=whole, rows=rows)
