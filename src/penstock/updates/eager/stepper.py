"""Holds a state, and runs the phases that step it, one torch call at a time."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.algorithm import Gradients, Phase
from penstock.types import Array, Arrays
from penstock.updates.meter import Meter
from penstock.updates.phases import PhaseClock
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import Exchange, HandOn

__all__ = ["EagerStepper"]


class EagerStepper:
    """Runs gradient steps; as `penstock.updates.stepper.Stepper`.

    Args:
        phases: of the algorithm.
        settings: of the updater.
        example: a minibatch of a stream. ``None``: minibatches are sampled from a table.
    """

    def __init__(
        self, phases: Sequence[Phase], settings: UpdaterSettings, example: Mapping[str, Tensor] | None = None
    ) -> None:
        self._example = example
        self._meter = Meter()
        self._phases = phases
        self._settings = settings
        self._learner = settings.learner
        self._device = torch.device(settings.device)
        self._state = {
            part.name: torch.from_numpy(np.zeros(part.shape, part.dtype)).to(self._device)
            for part in settings.spec.state
        }
        self._clock = PhaseClock(
            [phase.every for phase in phases],
            [phase.noise for phase in phases],
            settings.seed,
            counted="gradient_steps" in self._state,
        )

    @property
    def count(self) -> int:
        """Gradient steps so far."""
        return self._clock.count

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        for name, values in state.items():
            self._state[name] = torch.tensor(values, device=self._device)
        if "gradient_steps" in state:
            self._clock.count = int(state["gradient_steps"])

    def arrays(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return _here(self._state)

    def tensors(self) -> Mapping[str, Tensor]:
        """The state's named arrays on its device; valid until the next call that changes the state."""
        return self._state

    def progress(self, progress: float) -> None:
        """How far the run is, in [0, 1]."""
        self._state["progress"] = torch.tensor(progress, dtype=torch.float64, device=self._device)

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        return self._meter.take()

    def step(
        self, parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float], exchange: Exchange | None
    ) -> Arrays:
        """Take one gradient step; as `penstock.updates.stepper.Stepper.step`."""
        all_found = []
        for index in self._clock.due():
            phase = self._phases[index]
            found = self._found(index, parts, weights)
            gradients = found.gradients
            if exchange is not None and gradients:
                gradients = self._sent(exchange(phase.name, _here(gradients), sum(weights)))
            self._state.update(phase.apply(self._state, gradients))
            all_found.append(found)
        return self._count_on(all_found)

    def hand_on(self, parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float], hand_on: HandOn) -> Arrays:
        """Hand on the gradients of one step; as `penstock.updates.stepper.Stepper.hand_on`."""
        all_found = []
        for index in self._clock.due():
            found = self._found(index, parts, weights)
            if found.gradients:
                hand_on(self._phases[index].name, _here(found.gradients), sum(weights))
            all_found.append(found)
        return self._count_on(all_found)

    def apply(self, gradients: Mapping[str, Mapping[str, Array]]) -> None:
        """Take one gradient step by these gradients; as `penstock.updates.stepper.Stepper.apply`."""
        due = self._clock.due()
        for index, phase in enumerate(self._phases):
            if phase.name in gradients or (index in due and self._silent(index)):
                self._state.update(phase.apply(self._state, self._sent(gradients.get(phase.name, {}))))
        self._count_on([])

    def _found(self, index: int, parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Gradients:
        """The gradients of one phase over all parts of a minibatch together."""
        noise = self._noise(index, len(parts), len(parts[0]["weight"]))
        found = [self._phases[index].gradients(self._state, *inputs) for inputs in zip(parts, noise, strict=True)]
        return Gradients(
            _mean([part.gradients for part in found], weights),
            _mean([part.metrics for part in found], weights),
            {name: torch.cat([part.per_row[name] for part in found]) for name in found[0].per_row},
        )

    def _sent(self, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        return {name: torch.tensor(values, device=self._device) for name, values in arrays.items()}

    def _silent(self, index: int) -> bool:
        """True for a phase that gives no gradients. It is evaluated on one row to see that."""
        phase, settings, minibatch = self._phases[index], self._settings, self._example
        if minibatch is None:
            specs = settings.spec.sampled(settings.spaces)
            row = {part.name: np.zeros((1, *part.shape), part.dtype) for part in specs}
            minibatch = {name: torch.from_numpy(values).to(self._device) for name, values in row.items()}
        return not phase.gradients(self._state, minibatch, *self._noise(index, 1, 1)).gradients

    def _count_on(self, all_found: Sequence[Gradients]) -> Arrays:
        """Count a gradient step and add its metrics. Returns what its phases computed for each row."""
        self._clock.count += 1
        if "gradient_steps" in self._state:
            self._state["gradient_steps"] = torch.tensor(self._clock.count, device=self._device)
        metrics = {name: value for found in all_found for name, value in found.metrics.items()}
        if metrics:
            self._meter.add(metrics)
        return _here({name: values for found in all_found for name, values in found.per_row.items()})

    def _noise(self, phase: int, parts: int, size: int) -> list[dict[str, Tensor]]:
        """The noise of a phase for each part. Rows are numbered through all learners, one learner after the other.

        Parts of padding alone are left out at the end, but have their numbers: learners must not share noise.
        """
        first_row = self._learner * self._settings.accumulate * size
        here = {
            name: torch.from_numpy(values).to(self._device).reshape(parts, size, *values.shape[1:])
            for name, values in self._clock.noise(phase, first_row, parts * size).items()
        }
        return [{name: values[part] for name, values in here.items()} for part in range(parts)]


def _here(tensors: Mapping[str, Tensor]) -> Arrays:
    """The tensors as arrays on the CPU."""
    return {name: values.cpu().numpy() for name, values in tensors.items()}


def _mean(found: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean of each named tensor."""
    if len(found) == 1:
        return dict(found[0])
    total = sum(weights)
    return {
        name: torch.stack([weight / total * part[name] for part, weight in zip(found, weights, strict=True)]).sum(0)
        for name in found[0]
    }
