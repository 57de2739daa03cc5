"""Learning from a stream by compiled libraries: minibatches are gathered, many at once, into fixed buffers."""

from collections.abc import Mapping

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, UpdaterSettings
from penstock.registry import load
from penstock.types import Array
from penstock.updates.batch import Batch
from penstock.updates.compiled.stepper import CompiledStepper
from penstock.updates.stream_learning import StreamLearner

__all__ = ["CompiledUpdater", "build"]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "CompiledUpdater":
    """The updater of a learner from a stream, compiled or taken from the cache; ``arrays`` as for the eager one."""
    torch.set_num_threads(settings.threads)
    return CompiledUpdater(load(settings.learn)(settings.spaces, settings.config), settings, arrays)


class CompiledUpdater(StreamLearner):
    """Runs an algorithm's phases over the rows of a stream."""

    _stepper: CompiledStepper

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array]) -> None:
        """Lay out the buffers and compile the phases."""
        spec, device = settings.spec, torch.device(settings.device)
        batch = Batch(arrays, spec.minibatch, spec.targets, device, staged=device.type != "cpu")
        super().__init__(algorithm, batch, spec.schedule.mini_batch_size)
        self._position = torch.zeros((), dtype=torch.int64, device=device)
        self._stepper = CompiledStepper(algorithm.phases, settings, {**self._rows, POSITION: self._position}, _take)
        self._stepper.prepare_steps()

    def _learn(self, weights: Array) -> None:
        self._position.zero_()
        for _ in weights:
            self._stepper.step_here()


POSITION = "position"
"""Among the rows: which of the gathered minibatches comes next. Libraries count it up, so that calls need nothing."""


def _take(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    position = rows[POSITION]
    at = position.view(1)
    minibatch = {name: rows[name].index_select(0, at).squeeze(0) for name in rows.keys() - {POSITION}}
    position.add_(1)
    return minibatch
