"""A state in fixed buffers, and the libraries that step it: which phases are due, with which noise."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.algorithm import Phase, UpdaterSettings
from penstock.ops.meter import Meter
from penstock.ops.phases import PhaseClock
from penstock.types import Array, Arrays
from penstock.updater import Exchange
from penstock.updates.compiled.program import Apply, Buffers, FindGradients, Step, Take

__all__ = ["Stepper"]


class Stepper:
    """Runs gradient steps.

    Args:
        phases: of the algorithm.
        settings: of the updater.
        rows: what ``take`` takes a minibatch from.
        take: traced.
    """

    def __init__(self, phases: Sequence[Phase], settings: UpdaterSettings, rows: dict[str, Tensor], take: Take) -> None:
        device = torch.device(settings.device)
        size = settings.spec.schedule.mini_batch_size
        self._phases = phases
        self._learner = settings.learner
        self._size = size
        self._meter = Meter()
        self._buffers = Buffers(
            state={
                part.name: torch.from_numpy(np.zeros(part.shape, part.dtype)).to(device) for part in settings.spec.state
            },
            rows=rows,
            take=take,
            noise=tuple(
                {name: torch.zeros((size, *spec.shape), device=device) for name, spec in phase.noise}
                for phase in phases
            ),
            share=torch.ones((), device=device),
            tuned=[value for value in vars(settings.config).values() if isinstance(value, float)],
        )
        self._clock = PhaseClock(
            [phase.every for phase in phases],
            [phase.noise for phase in phases],
            settings.seed,
            counted="gradient_steps" in self._buffers.state,
        )
        self._steps: dict[tuple[int, ...], Step] = {}
        self._parts: dict[int, tuple[FindGradients, Apply]] = {}

    @property
    def count(self) -> int:
        """Gradient steps so far."""
        return self._clock.count

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        for name, values in state.items():
            self._buffers.state[name].copy_(torch.tensor(values))
        if "gradient_steps" in state:
            self._clock.count = int(state["gradient_steps"])

    def arrays(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return {name: values.cpu().numpy() for name, values in self._buffers.state.items()}

    def progress(self, progress: float) -> None:
        """How far the run is, in [0, 1]."""
        self._buffers.state["progress"].fill_(progress)

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        for step in self._steps.values():
            step.drain(self._meter)
        for find, _ in self._parts.values():
            find.drain(self._meter)
        return self._meter.take()

    def prepare(self, *, in_parts: bool) -> None:
        """Have the libraries ready that are needed from the first steps on."""
        if in_parts:
            for index in range(len(self._phases)):
                self._part(index)
            return
        count = self._clock.count
        for self._clock.count in (0, 1):  # All phases are due at 0, and at 1 those that are at every step.
            self._step(self._clock.due())
        self._clock.count = count

    def step(self) -> Arrays:
        """One gradient step with the minibatch that the rows hold; what it finds for each row."""
        due = self._clock.due()
        for index in due:
            self._draw(index, 0, self._size)
        step = self._step(due)
        step.run()
        self._clock.count += 1
        return {name: values.cpu().numpy().copy() for name, values in step.per_row.items()}

    def step_in_parts(
        self, parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float], exchange: Exchange | None
    ) -> Arrays:
        """One gradient step with a minibatch in parts; what it finds for each row.

        Args:
            parts: field -> ``[m, ...]`` each.
            weights: the sum of each part's ``weight``.
            exchange: how several learners agree; ``None``: this one is alone.
        """
        found: dict[str, list[Tensor]] = {}
        for index in self._clock.due():
            find, apply = self._part(index)
            for gradient in find.gradients.values():
                gradient.zero_()
            for number, (part, weight) in enumerate(zip(parts, weights, strict=True)):
                self.put(part)
                self._draw(index, number, len(parts) * self._size)
                self._buffers.share.fill_(weight / sum(weights))
                find.run(count=0 if number else 1)
                for name, values in find.per_row.items():
                    found.setdefault(name, []).append(values.clone())
            if exchange is not None and find.gradients:
                mine = {name: gradient.cpu().numpy() for name, gradient in find.gradients.items()}
                for name, agreed in exchange(self._phases[index].name, mine, sum(weights)).items():
                    find.gradients[name].copy_(torch.from_numpy(agreed))
            apply.run()
        self._count_on()
        return {name: torch.cat(values).cpu().numpy() for name, values in found.items()}

    def apply(self, gradients: Mapping[str, Mapping[str, Array]]) -> None:
        """One gradient step: phases with gradients step down these, those that never have any have their turn."""
        due = self._clock.due()
        for index, phase in enumerate(self._phases):
            find, apply = self._part(index)
            if phase.name in gradients or (index in due and not find.gradients):
                for name, values in gradients.get(phase.name, {}).items():
                    find.gradients[name].copy_(torch.from_numpy(values))
                apply.run()
        self._count_on()

    def _count_on(self) -> None:
        self._clock.count += 1
        if "gradient_steps" in self._buffers.state:
            self._buffers.state["gradient_steps"].fill_(self._clock.count)

    def put(self, part: Mapping[str, Tensor]) -> None:
        """Make this minibatch, ``[m, ...]`` each, the one that the rows hold."""
        for name, values in self._buffers.rows.items():
            values.copy_(part[name])

    def _draw(self, phase: int, part: int, rows: int) -> None:
        """Draw the noise of a phase for one part of a minibatch of so many rows, those of other learners apart."""
        if self._buffers.noise[phase]:
            first_row = self._learner * rows + part * self._size
            for name, values in self._clock.noise(phase, first_row, self._size).items():
                self._buffers.noise[phase][name].copy_(torch.from_numpy(values))

    def _step(self, due: tuple[int, ...]) -> Step:
        if due not in self._steps:
            self._steps[due] = Step([(index, self._phases[index]) for index in due], self._buffers)
        return self._steps[due]

    def _part(self, index: int) -> tuple[FindGradients, Apply]:
        if index not in self._parts:
            phase = self._phases[index]
            find = FindGradients(index, phase, self._buffers)
            self._parts[index] = find, Apply(phase, find.gradients, self._buffers)
        return self._parts[index]
