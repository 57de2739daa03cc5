"""The update as one native library: gather, gradients, clip and optimizer step of a minibatch in one call.

The phases are traced once into a graph without autograd, lowered to C++ by torch's ahead-of-time compiler, and kept in
the user's cache for the next start. State is updated in place. Knows no algorithm beyond its phases.
"""

import hashlib
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.fx import GraphModule

from penstock.algorithm import Algorithm, Phase, UpdaterSettings
from penstock.ops.batch import Batch
from penstock.ops.lowering import rational_tanh, thin_addmm, thin_mm
from penstock.ops.meter import Meter
from penstock.ops.tracing import trace
from penstock.registry import load
from penstock.types import Array, Arrays

__all__ = ["CompiledUpdater", "build"]

OPTIONS = {"pattern_matcher": False}
"""Without the matcher the bias stays out of the matrix product and joins the activation: 157 to 116 us a minibatch."""


def _mm(a: Tensor, b: Tensor) -> Tensor:
    product = thin_mm(a, b)
    return NotImplemented if product is None else product


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


CPU_REWRITES: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.addmm.default: thin_addmm,
    torch.ops.aten.dot.default: _dot,
    torch.ops.aten.mm.default: _mm,
    torch.ops.aten.tanh.default: rational_tanh,
}


def build(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "CompiledUpdater":
    """The updater of a learner from a stream, compiled or taken from the cache; ``arrays`` as for the eager one."""
    torch.set_num_threads(settings.threads)
    return CompiledUpdater(load(settings.learn)(settings.spaces, settings.config), settings, arrays)


class CompiledUpdater:
    """Runs an algorithm's phases as compiled programs over fixed buffers."""

    def __init__(self, algorithm: Algorithm, settings: UpdaterSettings, arrays: Mapping[str, Array]) -> None:
        """Lay out the buffers and compile the phases."""
        spec, device = settings.spec, torch.device(settings.device)
        # One library serves all values of the hyper-parameters.
        self._tuned = [value for value in vars(settings.config).values() if isinstance(value, float)]
        self._algorithm = algorithm
        self._batch = Batch(arrays, spec.minibatch, spec.targets, device, staged=device.type != "cpu")
        self._meter = Meter()
        self._state = {part.name: torch.from_numpy(np.zeros(part.shape, part.dtype)).to(device) for part in spec.state}
        self._rows = self._batch.buffers(spec.schedule.mini_batch_size)
        self._position = torch.zeros((), dtype=torch.int64, device=device)
        self._count = 0
        self._programs: dict[tuple[int, ...], Program] = {}
        self._program()

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        for name, values in state.items():
            self._state[name].copy_(torch.tensor(values))

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return {name: values.cpu().numpy() for name, values in self._state.items()}

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``."""
        self._state["progress"].fill_(progress)
        state = self.state()
        self._batch.prepare(slots, lambda rollout: self._algorithm.targets(state, rollout))

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices``."""
        room = len(self._rows["weight"])
        for start in range(0, len(indices), room):
            part = slice(start, start + room)
            self._batch.gather(indices[part], weights[part], self._rows)
            self._position.zero_()
            for _ in range(len(indices[part])):
                self._program().run()
                self._count += 1

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        for program in self._programs.values():
            program.drain(self._meter)
        return self._meter.take()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        for slot in slots:
            self.load(self._algorithm.statistics(self.state(), self._batch.rollout(slot)))

    def _program(self) -> "Program":
        """The program of the phases that are due now."""
        due = tuple(i for i, phase in enumerate(self._algorithm.phases) if self._count % phase.every == 0)
        if due not in self._programs:
            phases = [self._algorithm.phases[i] for i in due]
            self._programs[due] = Program(phases, self._state, self._rows, self._position, self._tuned)
        return self._programs[due]


class Program:
    """One update with some phases, as a library that changes the state where it lies.

    It reads minibatch ``position`` of the gathered rows and counts ``position`` up, so that calls need no arguments.
    """

    def __init__(
        self,
        phases: Sequence[Phase],
        state: Mapping[str, Tensor],
        rows: Mapping[str, Tensor],
        position: Tensor,
        tuned: Collection[float],
    ) -> None:
        # Pure functions: running them once on what the buffers hold now tells the metrics' names and changes nothing.
        _, metrics = _evaluate(phases, state, {name: values[0] for name, values in rows.items()})
        self._names = tuple(metrics)
        self._count = 0
        self._sums = torch.zeros(len(metrics), dtype=torch.float64, device=position.device)
        state_names, row_names = list(state), list(rows)

        def step(*tensors: Tensor) -> tuple[Tensor]:
            """Named tensors in order: state, rows, position, sums. Mutates state, position and sums."""
            at, sums = tensors[-2:]
            now = dict(zip(state_names, tensors, strict=False))
            gathered = zip(row_names, tensors[len(now) :], strict=False)
            minibatch = {name: values.index_select(0, at.view(1)).squeeze(0) for name, values in gathered}
            changed, found = _evaluate(phases, now, minibatch)
            for name, values in changed.items():
                now[name].copy_(values)
            at.add_(1)
            return (sums.add_(_stacked(found)),)

        self._run, self._inputs = _library(step, [*state.values(), *rows.values(), position, self._sums], tuned)

    def run(self) -> None:
        """Run one update."""
        self._run(self._inputs)
        self._count += 1

    def drain(self, meter: Meter) -> None:
        """Hand over the sums of all metrics and start them again."""
        if self._count:
            meter.add_sums(self._names, self._sums.clone(), self._count)
            self._sums.zero_()
            self._count = 0


def _evaluate(
    phases: Sequence[Phase], state: Mapping[str, Tensor], minibatch: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What the phases change in the state, one after the other, and their metrics."""
    changed: dict[str, Tensor] = {}
    metrics: dict[str, Tensor] = {}
    for phase in phases:
        found = phase.gradients({**state, **changed}, minibatch, {})
        changed.update(phase.apply({**state, **changed}, found.gradients))
        metrics.update(found.metrics)
    return changed, metrics


def _stacked(metrics: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([value.to(torch.float64) for value in metrics.values()])


def _library(
    function: Callable[..., Any], inputs: Sequence[Tensor], tuned: Collection[float]
) -> tuple[Callable[[list[Tensor]], object], list[Tensor]]:
    """``function`` over these inputs as a loaded library, from the cache where it has been built before.

    Returns:
        What runs it, and the inputs to run it with: those given, then what ``function`` holds.
    """
    device = inputs[0].device
    rewrites = CPU_REWRITES if device.type == "cpu" else {}
    graph, inputs = trace(function, inputs, rewrites, tuned)
    path = _cache() / f"{_key(graph, inputs)}.so"
    if not path.exists():
        _compile(graph, inputs, path)
    runners = torch._C._aoti  # noqa: SLF001 - the loaders of torch's own ahead-of-time libraries have no public name
    if device.type == "cpu":
        return runners.AOTIModelContainerRunnerCpu(str(path), 1).run, inputs
    return runners.AOTIModelContainerRunnerCuda(str(path), 1, str(device)).run, inputs


def _compile(graph: GraphModule, inputs: Sequence[Tensor], path: Path) -> None:
    """Build the library at ``path``; whoever looks sees it whole or not at all."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own, about its own insides
        options = {**OPTIONS, "aot_inductor.output_path": str(Path(folder) / "update.so")}
        built = torch._inductor.aot_compile(graph, tuple(inputs), options=options)  # noqa: SLF001
        with Path(str(built)).open("rb") as library:
            os.fsync(library.fileno())
        Path(library.name).replace(path)


def _key(graph: GraphModule, inputs: Sequence[Tensor]) -> str:
    """Names everything that the machine code depends on."""
    parts = [
        torch.__version__,
        platform.machine(),
        str(sorted(torch.cpu.get_capabilities().items())),
        str(torch.get_num_threads()),
        str(sorted(OPTIONS.items())),
        *(f"{value.device}{value.dtype}{tuple(value.shape)}" for value in inputs),
        graph.code,
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _cache() -> Path:
    """A folder of this user that outlives the run; torch's own where there is no home to write to."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "penstock" / "updates"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(cache_dir()) / "penstock"
        folder.mkdir(parents=True, exist_ok=True)
    return folder
