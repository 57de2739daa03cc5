"""The update as plain torch calls: starts at once, needs no compiler. Knows no algorithm beyond its phases."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from penstock.algorithm import Algorithm, AlgorithmSpec
from penstock.ops.batch import Batch
from penstock.ops.meter import Meter
from penstock.types import Array, Arrays, Spaces

__all__ = ["EagerUpdater", "build"]


def build(  # noqa: PLR0917
    algorithm: str,
    config: Any,  # noqa: ANN401
    spec: AlgorithmSpec,
    spaces: Spaces,
    arrays: Mapping[str, Array],
    device: str,
    threads: int,
) -> "EagerUpdater":
    """The updater of one learner.

    Args:
        algorithm: the module whose ``build`` gives the algorithm's pure functions.
        config: the algorithm's.
        spec: the algorithm's, on these spaces.
        spaces: of one lane.
        arrays: field -> ``[slots, T + 1, lanes, ...]``: the stream's rows.
        device: of the state, ``cpu`` or ``cuda:n``.
        threads: of torch, in this process.
    """
    torch.set_num_threads(threads)
    return EagerUpdater(import_module(algorithm).build(spaces, config), spec, arrays, torch.device(device))


class EagerUpdater:
    """Runs an algorithm's phases one torch call at a time."""

    def __init__(
        self, algorithm: Algorithm, spec: AlgorithmSpec, arrays: Mapping[str, Array], device: torch.device
    ) -> None:
        self._algorithm = algorithm
        self._device = device
        self._batch = Batch(arrays, spec.minibatch, spec.targets, device)
        self._meter = Meter()
        self._state: dict[str, Tensor] = {}
        self._count = 0

    def initialise(self, seed: int) -> None:
        """Take the algorithm's initial state."""
        self.load(self._algorithm.init_state(seed))

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state."""
        self._state = {name: torch.tensor(values, device=self._device) for name, values in state.items()}

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return {name: values.cpu().numpy() for name, values in self._state.items()}

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``."""
        self._state["progress"] = torch.tensor(progress, dtype=torch.float64, device=self._device)
        state = self.state()
        for slot in slots:
            rollout = self._batch.rollout(slot)
            for name, values in self._algorithm.targets(state, rollout).items():
                rollout[name][...] = values
        self._batch.stage(slots)

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices``."""
        size = indices.shape[1]
        for part in self._batch.chunks(indices, weights):
            gathered = self._batch.gather(*part)
            names = list(gathered)
            for values in zip(*(torch.split(rows, size) for rows in gathered.values()), strict=True):
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
            changed = self._algorithm.statistics(self.state(), self._batch.rollout(slot))
            for name, values in changed.items():
                self._state[name] = torch.tensor(values, device=self._device)
