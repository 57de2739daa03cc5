"""The programs of an algorithm: whole gradient steps, or gradients of phases and the step of each phase apart.

A program is a native library, or on a GPU a CUDA graph. It works on fixed buffers, so that calls need no arguments.
Decides neither what is due nor what is sampled.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from penstock.algorithm import Gradients, Phase
from penstock.cuda_graph import captured
from penstock.errors import DeviceError
from penstock.ops.losses import mean_by
from penstock.updates.compiled.library import library
from penstock.updates.inbox import AcrossMinibatch
from penstock.updates.meter import Meter

__all__ = ["Apply", "Buffers", "ComputeGradients", "Step", "Take", "across_minibatch_of"]

Named: TypeAlias = Mapping[str, Tensor]
Take: TypeAlias = Callable[[dict[str, Tensor]], dict[str, Tensor]]
"""Takes the minibatch from the rows of a program. It is part of the program and may change the rows in place."""


def across_minibatch_of(take: Take, across_minibatch: AcrossMinibatch) -> Take:
    """As ``take``, then changes the minibatch by ``across_minibatch``, which depends on all of its rows."""

    def taken(rows: dict[str, Tensor]) -> dict[str, Tensor]:
        minibatch = take(rows)
        return {**minibatch, **across_minibatch(minibatch, mean_by(minibatch["weight"]))}

    return taken


@dataclass(frozen=True)
class Buffers:
    """The inputs and outputs of programs."""

    state: dict[str, Tensor]
    rows: dict[str, Tensor]
    """``take`` takes the minibatch from these."""
    take: Take
    noise: tuple[dict[str, Tensor], ...]
    """Noise of each phase, ``[m, ...]``."""
    parts: int
    """Parts of a minibatch."""
    share: Tensor
    """Weight of a part's gradient in its minibatch: float32 scalar."""
    tuned: Collection[float]
    """The algorithm's hyper-parameters. One native library serves all their values."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """``<number of the phase>.<network>`` -> ``[n]``, if computing and applying them are two programs."""
    per_row: dict[str, Tensor] = field(default_factory=dict)
    """What phases compute for each row, ``[m, ...]`` each."""

    def example(self) -> dict[str, Tensor]:
        """A minibatch of the right shapes; changes nothing."""
        return self.take({name: values.clone() for name, values in self.rows.items()})

    def found(self, index: int, phase: Phase) -> Gradients:
        """The gradients of a phase, evaluated on the current buffers."""
        return phase.gradients(self.state, self.example(), self.noise[index])


class Program:
    """A function of fixed buffers in one call, and the sums of its metrics."""

    def __init__(
        self,
        function: Callable[[dict[str, dict[str, Tensor]]], dict[str, Tensor]],
        groups: Mapping[str, Named],
        metrics: Sequence[str],
        tuned: Collection[float],
    ) -> None:
        """Compile ``function``, or take it from the cache; on a GPU, capture it.

        Args:
            function: of the groups' tensors. It changes some of them in place and returns the metrics.
            groups: group -> name -> tensor.
            metrics: names of the metrics.
            tuned: numbers that may differ from run to run.
        """
        self._names = tuple(metrics)
        self._count = 0
        tensors = [values for group in groups.values() for values in group.values()]
        self._sums = torch.zeros(len(metrics), dtype=torch.float64, device=tensors[0].device)

        def flat(*inputs: Tensor) -> tuple[Tensor]:
            left = iter(inputs)
            found = function({group: {name: next(left) for name in named} for group, named in groups.items()})
            sums = next(left)
            if found:
                sums.add_(torch.stack([found[name].to(torch.float64) for name in self._names]))
            return (sums,)

        inputs = [*tensors, self._sums]
        self._run: Callable[[], object]
        if self._sums.is_cuda:
            try:
                self._run = captured(flat, inputs)
            except DeviceError as error:
                raise DeviceError(f"the update cannot become a CUDA graph ({error}); try --backend eager") from error
        else:
            run, inputs = library(flat, inputs, tuned)
            self._run = partial(run, inputs)

    def run(self, count: int = 1) -> None:
        """Run the function once. Its metrics count as those of ``count`` gradient steps."""
        self._run()
        self._count += count

    def drain(self, meter: Meter) -> None:
        """Move the sums of all metrics to a meter."""
        if self._count == 0:
            return
        if self._names:
            meter.add_sums(self._names, self._sums.clone(), self._count)
        self._sums.zero_()
        self._count = 0


class Step(Program):
    """One gradient step of some phases, as one program."""

    def __init__(self, phases: Sequence[tuple[int, Phase]], buffers: Buffers) -> None:
        """Compile the step of these phases, each with its number."""
        # Phases are pure functions: running them once tells the names of the metrics and changes nothing.
        _, found = _evaluate(phases, buffers.state, buffers.example(), buffers.noise)
        self.per_row = _buffers_for(buffers.per_row, found.per_row)

        def step(given: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
            noise = [_of_phase(given["noise"], phase) for phase in range(len(buffers.noise))]
            changed, found = _evaluate(phases, given["state"], buffers.take(given["rows"]), noise)
            _write(given["state"], changed)
            _write(given["per_row"], found.per_row)
            if "gradient_steps" in given["state"]:
                given["state"]["gradient_steps"].add_(1)
            return dict(found.metrics)

        noise = _numbered({index: buffers.noise[index] for index, _ in phases})
        groups = {"state": buffers.state, "rows": buffers.rows, "noise": noise, "per_row": self.per_row}
        super().__init__(step, groups, list(found.metrics), buffers.tuned)


class ComputeGradients(Program):
    """The gradients of some phases, all from the current state.

    If a minibatch has parts, each part's gradients are added to ``gradients``, weighted by its share.

    Attributes:
        gradients: number of the phase -> network -> ``[n]``.
        per_row: name -> ``[m, ...]``.
    """

    def __init__(self, phases: Sequence[tuple[int, Phase]], buffers: Buffers) -> None:
        """Compile the step of these phases, each with its number."""
        found = {index: buffers.found(index, phase) for index, phase in phases}
        self.gradients = {index: _gradient_buffers(buffers, index, one.gradients) for index, one in found.items()}
        per_row = {name: row for one in found.values() for name, row in one.per_row.items()}
        self.per_row = _buffers_for(buffers.per_row, per_row)
        names = [name for one in found.values() for name in one.metrics]

        def compute(given: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
            minibatch, share = buffers.take(given["rows"]), given["share"]["share"]
            metrics: dict[str, Tensor] = {}
            for index, phase in phases:
                found = phase.gradients(given["state"], minibatch, _of_phase(given["noise"], index))
                for name, buffer in _of_phase(given["gradients"], index).items():
                    if buffers.parts > 1:
                        buffer.add_(share * found.gradients[name])
                    else:
                        buffer.copy_(found.gradients[name])
                _write(given["per_row"], found.per_row)
                metrics.update(found.metrics)
            return {name: share * metric for name, metric in metrics.items()}

        groups = {
            "state": buffers.state,
            "rows": buffers.rows,
            "noise": _numbered({index: buffers.noise[index] for index, _ in phases}),
            "share": {"share": buffers.share},
            "gradients": _numbered(self.gradients),
            "per_row": self.per_row,
        }
        super().__init__(compute, groups, names, buffers.tuned)


class Apply(Program):
    """The step of one phase down its gradients.

    Attributes:
        gradients: network -> ``[n]``; empty for a phase that never has any.
    """

    def __init__(self, index: int, phase: Phase, buffers: Buffers) -> None:
        """Compile the step of the phase with this number."""
        self.gradients = _gradient_buffers(buffers, index, buffers.found(index, phase).gradients)

        def apply(given: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
            _write(given["state"], phase.apply(given["state"], given["gradients"]))
            return {}

        super().__init__(apply, {"state": buffers.state, "gradients": self.gradients}, [], buffers.tuned)


def _gradient_buffers(buffers: Buffers, index: int, gradients: Named) -> dict[str, Tensor]:
    """The buffers for the gradients of one phase: network -> ``[n]``."""
    return _of_phase(_buffers_for(buffers.gradients, _numbered({index: gradients})), index)


def _evaluate(
    phases: Sequence[tuple[int, Phase]], state: Named, minibatch: Named, noise: Sequence[Named]
) -> tuple[dict[str, Tensor], Gradients]:
    """Evaluate phases one after the other. Returns the changed arrays of the state; and metrics and values of rows."""
    changed: dict[str, Tensor] = {}
    metrics: dict[str, Tensor] = {}
    per_row: dict[str, Tensor] = {}
    for index, phase in phases:
        found = phase.gradients({**state, **changed}, minibatch, noise[index])
        changed.update(phase.apply({**state, **changed}, found.gradients))
        metrics.update(found.metrics)
        per_row.update(found.per_row)
    return changed, Gradients({}, metrics, per_row)


def _numbered(of_phases: Mapping[int, Named]) -> dict[str, Tensor]:
    """Tensors of several phases in one mapping. `_of_phase` takes out those of one phase."""
    return {f"{index}.{name}": values for index, named in of_phases.items() for name, values in named.items()}


def _of_phase(numbered: Named, index: int) -> dict[str, Tensor]:
    prefix = f"{index}."
    return {name.removeprefix(prefix): values for name, values in numbered.items() if name.startswith(prefix)}


def _buffers_for(buffers: dict[str, Tensor], found: Named) -> dict[str, Tensor]:
    """The buffers for ``found``. Missing ones are made."""
    for name, values in found.items():
        if name not in buffers:
            buffers[name] = torch.zeros_like(values)
    return {name: buffers[name] for name in found}


def _write(buffers: Named, values: Named) -> None:
    for name, value in values.items():
        buffers[name].copy_(value)
