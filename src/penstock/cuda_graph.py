"""Captures a function over tensors of a GPU as a CUDA graph: one call starts all its kernels. Needs no compiler.

A kernel of a small network runs for less time than Python takes to start it. So the time of its update or answer is
mostly that of starts. Knows no algorithm.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from penstock.errors import DeviceError

__all__ = ["captured"]

WARM_UP = 2
"""Runs before the capture. Meanwhile libraries of CUDA load kernels and reserve memory, which a capture forbids."""


@dataclass(frozen=True, eq=False)
class _Replay:
    """Starts the kernels of a graph."""

    graph: torch.cuda.CUDAGraph
    kept: tuple[object, ...]
    """Kernels read and write at fixed addresses, so whatever owns that memory has to stay."""

    def __call__(self) -> None:
        self.graph.replay()


def captured(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Callable[[], None]:
    """Capture ``function(*inputs)``, which changes its inputs in place.

    What the function computes must not depend on values of tensors that the CPU has read. The inputs are unchanged once
    this returns.

    Returns:
        A call that runs the function on these same ``inputs``. It keeps the function and all that it refers to.

    Raises:
        DeviceError: the function waits for the GPU, or brings pageable arrays to it, so it cannot be captured. The text
            is the reason.
    """
    before = [values.clone() for values in inputs]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(inputs[0].device):
        # On a stream of its own, as the capture will be.
        main, apart = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        apart.wait_stream(main)
        with torch.cuda.stream(apart):
            for _ in range(WARM_UP):
                function(*inputs)
                _put(before, inputs)
        main.wait_stream(apart)
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                function(*inputs)
        except RuntimeError as error:
            raise DeviceError(str(error).strip().splitlines()[0]) from error
    return _Replay(graph, (function, *inputs))


def _put(values: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    for source, target in zip(values, into, strict=True):
        target.copy_(source)
