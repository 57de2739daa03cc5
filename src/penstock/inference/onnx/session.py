"""Runs a policy with ONNX Runtime, on one thread. Imports no torch, and `onnxruntime` only on use."""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import numpy as np

from penstock.inference.onnx.graph import write
from penstock.policies import Encoding, PolicyGraph
from penstock.types import Array

__all__ = ["OnnxPolicy", "build"]


class _Session(Protocol):
    """The part of ``onnxruntime.InferenceSession`` that is used here."""

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Outputs by name."""
        ...


class OnnxPolicy:
    """Runs ``act`` with ONNX Runtime on one thread. Call `load` before `act`."""

    def __init__(self, graph: PolicyGraph) -> None:
        self.graph = graph
        self._session: _Session | None = None

    def load(self, published: Mapping[str, Array]) -> None:
        """Copy new parameters and statistics. The caller may reuse the arrays afterwards."""
        self._session = _session(write(self.graph, published))

    def act(self, obs: Mapping[str, Array], noise: Array, explore: Array, out: Mapping[str, Array]) -> None:
        """Write the outputs of ``act`` for n lanes into ``out``. See `penstock.types.PolicyBackend`."""
        if self._session is None:
            raise RuntimeError("load parameters before acting")
        n = len(explore)
        feeds = {part.field: _field(part, obs[part.field], n) for part in self.graph.encoding}
        feeds["noise"] = np.ascontiguousarray(noise.reshape(n, -1), np.float32)
        feeds["explore"] = np.ascontiguousarray(explore, np.float32)
        if n == 1:
            # ONNX Runtime sums in another order for one row than for several. So run two rows.
            feeds = {name: np.concatenate([rows, rows]) for name, rows in feeds.items()}
        names = list(out)
        for name, rows in zip(names, self._session.run(names, feeds), strict=True):
            out[name][...] = rows[:n].reshape(out[name].shape)


def _field(part: Encoding, rows: Array, n: int) -> Array:
    """An observation field in the shape and dtype of the graph's input."""
    if part.kind == "flat":
        return np.ascontiguousarray(rows.reshape(n, part.size), np.float32)
    return np.ascontiguousarray(rows, np.int64 if part.kind == "one_hot" else np.uint8)


def _session(model: bytes) -> _Session:
    import onnxruntime  # noqa: PLC0415 - importing this module must stay light

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return cast("_Session", onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))


def build(graph: PolicyGraph) -> OnnxPolicy:
    """A backend for ``graph`` on ONNX Runtime, which runs every graph."""
    return OnnxPolicy(graph)
