"""Holds a state in fixed buffers, and runs the libraries of the phases that are due, with their noise."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.algorithm import Gradients, Phase
from penstock.types import Array, Arrays
from penstock.updates.compiled.program import Apply, Buffers, ComputeGradients, Step, Take
from penstock.updates.meter import Meter
from penstock.updates.phases import PhaseClock
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import Exchange, HandOn

__all__ = ["CompiledStepper"]


class CompiledStepper:
    """Runs gradient steps; as `penstock.updates.stepper.Stepper`.

    Args:
        phases: of the algorithm.
        settings: of the updater.
        rows: ``take`` takes a minibatch from these.
        take: traced into each library.
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
            parts=settings.accumulate,
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
        self._computations: dict[tuple[int, ...], ComputeGradients] = {}
        self._applies: dict[int, Apply] = {}
        self._found: dict[int, Gradients] = {}

    @property
    def count(self) -> int:
        """Gradient steps so far."""
        return self._clock.count

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        for name, values in state.items():
            self._buffers.state[name].copy_(torch.from_numpy(np.require(values, requirements="W")))
        if "gradient_steps" in state:
            self._clock.count = int(state["gradient_steps"])

    def arrays(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return _here(self._buffers.state)

    def tensors(self) -> Mapping[str, Tensor]:
        """The state's named arrays on its device; valid until the next call that changes the state."""
        return self._buffers.state

    def progress(self, progress: float) -> None:
        """How far the run is, in [0, 1]."""
        self._buffers.state["progress"].fill_(progress)

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        for program in (*self._steps.values(), *self._computations.values()):
            program.drain(self._meter)
        return self._meter.take()

    def prepare_steps(self) -> None:
        """Load the libraries that a single learner needs for its first steps."""
        for due in self._first_due():
            self._step(due)

    def prepare_parts(self) -> None:
        """Load the libraries for learners that agree on gradients, and for minibatches in parts."""
        for index in range(len(self._phases)):
            if any(self._names(index)):
                self._computation((index,))
            self._apply(index)

    def prepare_gradients(self) -> None:
        """Load the libraries that `hand_on` needs for its first steps."""
        for due in self._first_due():
            self._computation(self._with_gradients(due))

    def prepare_applies(self) -> None:
        """Load the libraries that `apply` needs."""
        for index in range(len(self._phases)):
            self._apply(index)

    def _with_gradients(self, due: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the phases that have gradients."""
        return tuple(index for index in due if self._names(index).gradients)

    def _names(self, index: int) -> Gradients:
        """The names of what a phase computes from a minibatch. Evaluating it once shows them."""
        if index not in self._found:
            self._found[index] = self._buffers.found(index, self._phases[index])
        return self._found[index]

    def _first_due(self) -> list[tuple[int, ...]]:
        """The phases due at step 0, which are all, and at step 1, which are those of every step."""
        count, found = self._clock.count, []
        for self._clock.count in (0, 1):
            found.append(self._clock.due())
        self._clock.count = count
        return found

    def step_here(self) -> Arrays:
        """Take one gradient step by the minibatch in the rows. Returns what the phases compute for each row."""
        due = self._clock.due()
        for index in due:
            self._generate_noise(index, 0)
        step = self._step(due)
        step.run()
        self._clock.count += 1
        return {name: values.copy() for name, values in _here(step.per_row).items()}

    def step(
        self, parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float], exchange: Exchange | None
    ) -> Arrays:
        """Take one gradient step; as `penstock.updates.stepper.Stepper.step`."""
        if exchange is None and self._buffers.parts == 1:
            self._put(parts[0])
            return self.step_here()
        per_row: Arrays = {}
        for index in self._clock.due():
            apply = self._apply(index)
            # A phase that only copies parameters computes nothing from a minibatch: it needs no library for that.
            if any(self._names(index)):
                per_row |= self._run_parts((index,), self._computation((index,)), parts, weights)
            if exchange is not None and apply.gradients:
                mine = _here(apply.gradients)
                for name, agreed in exchange(self._phases[index].name, mine, sum(weights)).items():
                    apply.gradients[name].copy_(torch.from_numpy(agreed))
            apply.run()
        self._count_on()
        return per_row

    def hand_on(self, parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float], hand_on: HandOn) -> Arrays:
        """Hand on the gradients of one step; as `penstock.updates.stepper.Stepper.hand_on`."""
        due = self._with_gradients(self._clock.due())
        computation = self._computation(due)
        per_row = self._run_parts(due, computation, parts, weights)
        for index, gradients in computation.gradients.items():
            hand_on(self._phases[index].name, _here(gradients), sum(weights))
        self._count_on()
        return per_row

    def apply(self, gradients: Mapping[str, Mapping[str, Array]]) -> None:
        """Take one gradient step by these gradients; as `penstock.updates.stepper.Stepper.apply`."""
        due = self._clock.due()
        for index, phase in enumerate(self._phases):
            apply = self._apply(index)
            if phase.name in gradients or (index in due and not apply.gradients):
                for name, values in gradients.get(phase.name, {}).items():
                    apply.gradients[name].copy_(torch.from_numpy(values))
                apply.run()
        self._count_on()

    def _run_parts(
        self,
        phases: Sequence[int],
        computation: ComputeGradients,
        parts: Sequence[Mapping[str, Tensor]],
        weights: Sequence[float],
    ) -> Arrays:
        """Compute the gradients of these phases over all parts. Returns what the phases compute for each row."""
        if self._buffers.parts > 1:
            for gradients in computation.gradients.values():
                for gradient in gradients.values():
                    gradient.zero_()
        found: dict[str, list[Array]] = {name: [] for name in computation.per_row}
        for number, (part, weight) in enumerate(zip(parts, weights, strict=True)):
            self._put(part)
            for index in phases:
                self._generate_noise(index, number)
            # A part of weight 0 is alone in its minibatch: only other learners have rows of that minibatch.
            self._buffers.share.fill_(weight / sum(weights) if weight else 1.0)
            computation.run(count=0 if number else 1)
            for name, values in computation.per_row.items():
                found[name].append(values.numpy(force=True).copy())
        return {name: np.concatenate(values) for name, values in found.items()}

    def _count_on(self) -> None:
        self._clock.count += 1
        if "gradient_steps" in self._buffers.state:
            self._buffers.state["gradient_steps"].fill_(self._clock.count)

    def _put(self, part: Mapping[str, Tensor]) -> None:
        """Copy this minibatch, ``[m, ...]`` each, into the rows."""
        if part is self._buffers.rows:
            return
        for name, values in self._buffers.rows.items():
            values.copy_(part[name])

    def _generate_noise(self, phase: int, part: int) -> None:
        """Generate the noise of a phase for one part of a minibatch. Learners have different noise."""
        if self._buffers.noise[phase]:
            # Parts of padding alone are left out, but have their numbers: learners must not share noise.
            first_row = (self._learner * self._buffers.parts + part) * self._size
            for name, values in self._clock.noise(phase, first_row, self._size).items():
                self._buffers.noise[phase][name].copy_(torch.from_numpy(values))

    def _step(self, due: tuple[int, ...]) -> Step:
        if due not in self._steps:
            self._steps[due] = Step([(index, self._phases[index]) for index in due], self._buffers)
        return self._steps[due]

    def _computation(self, due: tuple[int, ...]) -> ComputeGradients:
        if due not in self._computations:
            self._computations[due] = ComputeGradients([(index, self._phases[index]) for index in due], self._buffers)
        return self._computations[due]

    def _apply(self, index: int) -> Apply:
        if index not in self._applies:
            self._applies[index] = Apply(index, self._phases[index], self._buffers)
        return self._applies[index]


def _here(tensors: Mapping[str, Tensor]) -> Arrays:
    """The tensors as arrays on the CPU."""
    return {name: values.cpu().numpy() for name, values in tensors.items()}
