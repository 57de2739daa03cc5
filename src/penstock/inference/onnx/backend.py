"""Runs a policy with ONNX Runtime, on one thread. Imports no torch, and `onnxruntime` only on use."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from penstock.errors import DeviceError
from penstock.inference.onnx.encoding import field_dtype
from penstock.inference.onnx.graph import write
from penstock.inference.onnx.recurrent import next_name
from penstock.policies import Encoding, PolicyGraph
from penstock.types import Array

__all__ = ["CPU", "LoadedGraph", "OnnxPolicy", "build", "load_graph", "run_rows"]

CPU = "CPUExecutionProvider"


class LoadedGraph(Protocol):
    """A graph in ONNX Runtime: the part of ``onnxruntime.InferenceSession`` that is used here."""

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Outputs by name."""
        ...

    def get_inputs(self) -> Sequence[Any]:
        """The graph's inputs; each has a ``name``."""
        ...

    def get_providers(self) -> Sequence[str]:
        """Names of what computes, the preferred one first."""
        ...


class OnnxPolicy:
    """Runs ``act`` with ONNX Runtime on one thread. Call `load` before `act`."""

    def __init__(self, graph: PolicyGraph, exported: bytes = b"") -> None:
        self.graph = graph
        self._exported = exported
        self._loaded: LoadedGraph | None = None

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy new parameters and statistics. The caller may reuse the arrays afterwards."""
        self._loaded = load_graph(write(self.graph, published, self._exported))

    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``. See `penstock.types.PolicyBackend`."""
        if self._loaded is None:
            raise RuntimeError("load parameters before acting")
        n = len(inputs["explore"])
        feeds = {part.field: _field(part, inputs[part.field], n) for part in self.graph.encoding}
        if self.graph.mask is not None:
            feeds[self.graph.mask] = np.ascontiguousarray(inputs[self.graph.mask], np.uint8)
        feeds["noise"] = np.ascontiguousarray(inputs["noise"].reshape(n, -1), np.float32)
        feeds["explore"] = np.ascontiguousarray(inputs["explore"], np.float32)
        if self.graph.carry:
            feeds["first"] = np.ascontiguousarray(inputs["first"], np.bool_)
            feeds |= {spec.name: np.ascontiguousarray(inputs[spec.name]) for spec in self.graph.carry}
        # A carry is an input and an output: its output has the name of the carry behind this row.
        names = [next_name(name) for name in out]
        for array, rows in zip(out.values(), run_rows(self._loaded, names, feeds), strict=True):
            array[...] = rows.reshape(array.shape)


def run_rows(loaded: LoadedGraph, names: Sequence[str], feeds: Mapping[str, Array]) -> Sequence[Array]:
    """Outputs ``[n, ...]`` by name, for feeds ``[n, ...]``.

    A row's result depends neither on n nor on its place among the rows, unless an operation of the graph does.
    ``ReduceSum`` over the elements of a row is such an operation: graphs of `write` use it only where the order of
    adding does not change the sum. A user's own module may use it anywhere.
    """
    if len(next(iter(feeds.values()))) > 1:
        return loaded.run(names, feeds)
    # ONNX Runtime sums in another order for one row than for several. So run two rows.
    twice = {name: np.concatenate([rows, rows]) for name, rows in feeds.items()}
    return [rows[:1] for rows in loaded.run(names, twice)]


def _field(part: Encoding, rows: Array, n: int) -> Array:
    """An observation field in the shape and dtype of the graph's input."""
    shaped = rows.reshape(n, part.size) if part.kind == "flat" else rows
    return np.ascontiguousarray(shaped, field_dtype(part))


def load_graph(model: bytes, provider: str = CPU) -> LoadedGraph:
    """Load a graph into ONNX Runtime, on one thread. Operations that the provider does not know run on the CPU.

    Raises:
        DeviceError: the provider cannot compute here. ONNX Runtime itself would go on with the CPU alone.
    """
    import onnxruntime  # noqa: PLC0415 - importing this module must stay light

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    providers = list(dict.fromkeys((provider, CPU)))
    loaded = cast("LoadedGraph", onnxruntime.InferenceSession(model, options, providers=providers))
    if (first := loaded.get_providers()[0]) != provider:
        raise DeviceError(
            f"ONNX Runtime computes with {first} in place of {provider}, whose libraries are missing or do not load"
        )
    return loaded


def build(graph: PolicyGraph, exported: bytes = b"") -> OnnxPolicy:
    """A backend for ``graph`` on ONNX Runtime, which runs every graph.

    ``exported`` is the exported graph of a user's own module, by ``penstock.torch_networks.own_export``.
    """
    return OnnxPolicy(graph, exported)
