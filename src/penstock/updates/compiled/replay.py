"""Learning from a table by compiled libraries: each minibatch is put into fixed buffers."""

from collections.abc import Mapping

import torch

from penstock.algorithm import Algorithm, UpdaterSettings
from penstock.ops.inbox import Inbox
from penstock.registry import load
from penstock.types import Array, Arrays
from penstock.updater import Exchange
from penstock.updates.compiled.stepper import Stepper

__all__ = ["CompiledReplayUpdater", "build_replay"]


def build_replay(settings: UpdaterSettings, exchange: Exchange | None = None) -> "CompiledReplayUpdater":
    """The updater of a learner from a table; ``exchange`` is how it agrees with others, if there are any."""
    torch.set_num_threads(settings.threads)
    return CompiledReplayUpdater(load(settings.learn)(settings.spaces, settings.config), settings, exchange)


class CompiledReplayUpdater:
    """Runs an algorithm's phases over minibatches that were drawn from a table.

    All phases that are due are one library; where others have a say in the gradients, or a minibatch comes in parts,
    each phase is two.
    """

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, exchange: Exchange | None) -> None:
        """Lay out the buffers and compile the phases."""
        device, size = torch.device(settings.device), settings.spec.schedule.mini_batch_size
        rows = {
            spec.name: torch.zeros((size, *spec.shape), dtype=getattr(torch, spec.dtype), device=device)
            for spec in settings.spec.drawn(settings.spaces)
        }
        self._exchange = exchange
        self._in_parts = exchange is not None or settings.accumulate > 1
        self._inbox = Inbox(settings.spec.drawn(settings.spaces), size, settings.accumulate, device)
        self._stepper = Stepper(algorithm.phases, settings, rows, dict)
        self._stepper.prepare(in_parts=self._in_parts)

    @property
    def gradient_steps(self) -> int:
        """How many the state has seen."""
        return self._stepper.count

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        self._stepper.load(state)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return self._stepper.arrays()

    def room(self) -> Arrays:
        """Arrays for a minibatch, in pinned memory where a GPU learns from it."""
        return self._inbox.room()

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """One gradient step: every phase that is due. As `penstock.updater.ReplayUpdater.learn`."""
        self._stepper.progress(progress)
        parts = self._inbox.take(minibatch)
        if self._in_parts:
            weights = minibatch["weight"].reshape(len(parts), -1).sum(1).tolist()
            return self._stepper.step_in_parts(parts, weights, self._exchange)
        self._stepper.put(parts[0])
        return self._stepper.step()

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """One gradient step by gradients that another updater has found. As `penstock.updater.ReplayUpdater.apply`."""
        self._stepper.progress(progress)
        self._stepper.apply(gradients)

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        return self._stepper.metrics()
