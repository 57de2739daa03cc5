"""Runs ``act`` of an algorithm with torch: on CUDA, and for policies that no other backend runs.

Does not know which algorithm it runs: it loads ``learn.py`` by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch

from penstock.algorithm import Tensors
from penstock.algorithm_lookup import load_functions
from penstock.config.schema import RunConfig
from penstock.cuda_graph import captured
from penstock.errors import DeviceError
from penstock.policies.batch_sizes import BatchSizes
from penstock.types import Array, Arrays, PolicyBackend, Spaces

__all__ = ["CapturedPolicy", "TorchPolicy", "build"]

_Act: TypeAlias = Callable[[Tensors, Tensors], Tensors]
"""``(published, inputs) -> outputs``, on one device."""


class TorchPolicy:
    """Runs an algorithm's ``act`` on one device, operation by operation. Call `load` before `act`."""

    def __init__(self, act: _Act, device: torch.device) -> None:
        self._act = act
        self._device = device
        self._published: dict[str, torch.Tensor] = {}

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy new parameters and statistics. The caller may reuse the arrays afterwards."""
        # torch.tensor copies on every device.
        self._published = {name: torch.tensor(array, device=self._device) for name, array in published.items()}

    @torch.no_grad()
    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``. See `penstock.types.PolicyBackend`."""
        tensors = {name: torch.as_tensor(array, device=self._device) for name, array in inputs.items()}
        outputs = self._act(self._published, tensors)
        for name, array in out.items():
            array[...] = outputs[name].cpu().numpy().reshape(array.shape)


@dataclass(frozen=True)
class _Batch:
    """``act`` for up to ``rows`` rows, as one CUDA graph if it can be captured."""

    inputs: Arrays
    """name -> ``[rows, ...]`` in pinned memory: what `run` reads."""
    outputs: Arrays
    """name -> ``[rows, ...]`` in pinned memory: what `run` writes, once the GPU is done."""
    run: Callable[[], None]


class CapturedPolicy:
    """Runs an algorithm's ``act`` on a GPU as a CUDA graph. Call `load` before `act`.

    The graph brings the inputs to the GPU, runs all kernels and brings the outputs back, so an answer is one call and
    one wait. There is one for each size of a batch; to need few of them, batches are padded.

    An ``act`` that cannot be captured, such as that of a user's own module which waits for the GPU, runs operation by
    operation.

    Args:
        act: of the algorithm.
        device: the GPU.
        sizes: to which batches are padded.

    Attributes:
        in_graphs: whether ``act`` can be captured, as far as is known.
    """

    def __init__(self, act: _Act, device: torch.device, sizes: BatchSizes) -> None:
        self._act = act
        self._device = device
        self._sizes = sizes
        self._published: dict[str, torch.Tensor] = {}
        self._batches: dict[tuple[int, frozenset[str]], _Batch] = {}
        """By size and by the names of the inputs."""
        self.in_graphs = True

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy new parameters and statistics to where the graphs read them. The caller may reuse the arrays."""
        for name, array in published.items():
            if name in self._published:
                self._published[name].copy_(torch.as_tensor(array))
            else:
                self._published[name] = torch.tensor(array, device=self._device)

    @torch.no_grad()
    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``. See `penstock.types.PolicyBackend`."""
        count = len(inputs["explore"])
        batch = self._batch(self._sizes.padded(count), inputs)
        for name, array in inputs.items():
            batch.inputs[name][:count] = array
        batch.run()
        torch.cuda.current_stream(self._device).synchronize()
        for name, array in out.items():
            array[...] = batch.outputs[name][:count].reshape(array.shape)

    def _batch(self, rows: int, inputs: Mapping[str, Array]) -> _Batch:
        key = rows, frozenset(inputs)
        if key not in self._batches:
            self._batches[key] = self._made(rows, inputs)
        return self._batches[key]

    def _made(self, rows: int, like: Mapping[str, Array]) -> _Batch:
        """The batch of ``rows`` rows of inputs like these. Rows that a call leaves out keep zeros or earlier inputs."""
        given = {
            name: torch.as_tensor(np.zeros((rows, *array.shape[1:]), array.dtype)).pin_memory()
            for name, array in like.items()
        }
        there = {name: values.to(self._device) for name, values in given.items()}
        found = {
            name: torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            for name, values in self._act(self._published, there).items()
        }

        def answer(*_: torch.Tensor) -> None:
            for name, values in there.items():
                values.copy_(given[name], non_blocking=True)
            for name, values in self._act(self._published, there).items():
                found[name].copy_(values, non_blocking=True)

        run: Callable[[], None] = answer
        if self.in_graphs:
            try:
                run = captured(answer, list(self._published.values()))
            except DeviceError:
                self.in_graphs = False
        return _Batch(_arrays(given), _arrays(found), run)


def _arrays(tensors: Mapping[str, torch.Tensor]) -> Arrays:
    """Views of tensors of the CPU, whose memory they keep."""
    return {name: values.numpy() for name, values in tensors.items()}


def build(
    learn: str,
    spaces: Spaces,
    config: object,
    device: str = "cpu",
    pad_batches: tuple[int, ...] | Literal["none", "powers"] = RunConfig.pad_batches,
) -> PolicyBackend:
    """A backend for the algorithm that ``learn`` names.

    Args:
        learn: ``module:attribute`` of the algorithm's ``build(spaces, config)``.
        spaces: the spaces of one lane.
        config: the algorithm's config.
        device: a torch device name.
        pad_batches: the sizes of batches on a GPU; see `BatchSizes`. On the CPU torch keeps nothing for one size, so
            batches are not padded.

    Raises:
        DeviceError: the device cannot be used on this machine.
    """
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}; try cpu") from error
    act = load_functions(learn)(spaces, config).act
    return CapturedPolicy(act, place, BatchSizes(pad_batches)) if place.type == "cuda" else TorchPolicy(act, place)
