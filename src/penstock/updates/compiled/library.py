"""Compiles a function over tensors of the CPU to a native library: traces it, lowers it to C++ by torch's own compiler.

A library that was built once is in the user's cache at the next start. Knows no algorithm.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.fx import GraphModule

from penstock.updates.compiled.lowering import rational_tanh, thin_addmm, thin_mm
from penstock.updates.compiled.tracing import trace

__all__ = ["library"]

OPTIONS = {"pattern_matcher": False}
"""Without the matcher the bias is fused with the activation, not the matrix product: 157 to 116 us a minibatch."""


def _mm(a: Tensor, b: Tensor) -> Tensor:
    product = thin_mm(a, b)
    return NotImplemented if product is None else product


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


REWRITES: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.addmm.default: thin_addmm,
    torch.ops.aten.dot.default: _dot,
    torch.ops.aten.mm.default: _mm,
    torch.ops.aten.tanh.default: rational_tanh,
}


def library(
    function: Callable[..., Any], inputs: Sequence[Tensor], tuned: Collection[float]
) -> tuple[Callable[[list[Tensor]], object], list[Tensor]]:
    """Load ``function`` over these inputs as a library, from the cache if it was built before.

    Returns:
        The function that runs it, and the inputs for it: the given ones, then the tensors that ``function`` holds.
    """
    graph, inputs = trace(function, inputs, REWRITES, tuned)
    path = _place(f"{_key(graph, inputs)}.so")
    if not path.exists():
        # Several learners may need the same library at once. Only one of them compiles it.
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _compile(graph, inputs, path)
    runners = torch._C._aoti  # noqa: SLF001 - the loaders of torch's own ahead-of-time libraries have no public name
    return runners.AOTIModelContainerRunnerCpu(str(path), 1).run, inputs


def _compile(graph: GraphModule, inputs: Sequence[Tensor], path: Path) -> None:
    """Build the library at ``path``. Other processes see it whole or not at all.

    If it calls operators that are not torch's own, torch writes a file that names them. The loader looks for that file
    beside the library, under its name with the suffix ``.json``. So the file is in place before the library is.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        options = {**OPTIONS, "aot_inductor.output_path": str(Path(folder) / "update.so")}
        built = torch._inductor.aot_compile(graph, tuple(inputs), options=options)  # noqa: SLF001
        for operators in Path(folder).glob("*.wrapper.json"):
            _keep(operators, path.with_suffix(".json"))
        _keep(Path(str(built)), path)


def _keep(built: Path, path: Path) -> None:
    """Move a whole file to its place."""
    with built.open("rb") as file:
        os.fsync(file.fileno())
    built.replace(path)


def _key(graph: GraphModule, inputs: Sequence[Tensor]) -> str:
    """The file name: a hash of everything that the machine code depends on."""
    parts = [
        torch.__version__,
        platform.machine(),
        str(sorted(torch.cpu.get_capabilities().items())),
        str(torch.get_num_threads()),
        str(sorted(OPTIONS.items())),
        *(f"{value.dtype}{tuple(value.shape)}" for value in inputs),
        graph.code,
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _place(name: str) -> Path:
    """The path of a library: in the user's cache; in torch's if the user's lacks it and cannot be written to."""
    with contextlib.suppress(OSError, RuntimeError):  # a RuntimeError: the user has no home
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "updates"
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / name).exists() or os.access(folder, os.W_OK):
            return folder / name
    folder = Path(cache_dir()) / "penstock"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
