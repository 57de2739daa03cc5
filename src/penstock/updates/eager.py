"""The update as plain torch calls: starts at once, needs no compiler. Knows no algorithm beyond its phases."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithm import Algorithm, AlgorithmSpec
from penstock.ops.batch import Batch
from penstock.ops.meter import Meter
from penstock.registry import load
from penstock.types import Array, Arrays, Spaces

__all__ = ["EagerUpdater", "build"]


def build(  # noqa: PLR0917
    learn: str,
    config: Any,  # noqa: ANN401
    spec: AlgorithmSpec,
    spaces: Spaces,
    arrays: Mapping[str, Array],
    device: str,
    threads: int,
) -> "EagerUpdater":
    """The updater of one learner.

    Args:
        learn: "module:attribute" of what makes the algorithm's pure functions.
        config: the algorithm's.
        spec: the algorithm's, on these spaces.
        spaces: of one lane.
        arrays: field -> ``[slots, T + 1, lanes, ...]``: the stream's rows.
        device: of the state, ``cpu`` or ``cuda:n``.
        threads: of torch, in this process.
    """
    torch.set_num_threads(threads)
    return EagerUpdater(load(learn)(spaces, config), spec, arrays, torch.device(device))


class EagerUpdater:
    """Runs an algorithm's phases one torch call at a time."""

    def __init__(
        self, algorithm: Algorithm, spec: AlgorithmSpec, arrays: Mapping[str, Array], device: torch.device
    ) -> None:
        self._algorithm = algorithm
        self._batch = Batch(arrays, spec.minibatch, spec.targets, device, staged=device.type != "cpu")
        self._meter = Meter()
        self._state = {part.name: torch.from_numpy(np.zeros(part.shape, part.dtype)).to(device) for part in spec.state}
        self._rows = self._batch.buffers(spec.schedule.mini_batch_size)
        self._count = 0

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        for name, values in state.items():
            self._state[name] = torch.tensor(values, device=self._state[name].device)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return {name: values.cpu().numpy() for name, values in self._state.items()}

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``."""
        self.load({"progress": np.asarray(progress, np.float64)})
        state = self.state()
        self._batch.prepare(slots, lambda rollout: self._algorithm.targets(state, rollout))

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices``."""
        names = list(self._rows)
        room = len(self._rows["weight"])
        for start in range(0, len(indices), room):
            part = slice(start, start + room)
            self._batch.gather(indices[part], weights[part], self._rows)
            columns = [values[: len(indices[part])].unbind() for values in self._rows.values()]
            for values in zip(*columns, strict=True):
                self._step(dict(zip(names, values, strict=True)))

    def _step(self, minibatch: dict[str, Tensor]) -> None:
        """Every phase that is due: its gradients, then its step."""
        metrics: dict[str, Tensor] = {}
        for phase in self._algorithm.phases:
            if self._count % phase.every == 0:
                found = phase.gradients(self._state, minibatch, {})
                self._state.update(phase.apply(self._state, found.gradients))
                metrics.update(found.metrics)
        self._count += 1
        self._meter.add(metrics)

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._meter.take()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        for slot in slots:
            self.load(self._algorithm.statistics(self.state(), self._batch.rollout(slot)))
