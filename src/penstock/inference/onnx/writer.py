"""Collects the nodes and constants of an ONNX graph. Knows no policy. Imports `onnx` only on use."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OPSET", "Writer"]

OPSET = 18
_IR_VERSION = 8


class Writer:
    """Collects nodes and constants of one ONNX graph."""

    def __init__(self) -> None:
        import onnx  # noqa: PLC0415 - importing this module must stay light
        import onnx.compose  # noqa: PLC0415

        self._onnx: Any = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def op(self, kind: str, *inputs: str, into: str | None = None, **attributes: float | Sequence[int]) -> str:
        """Add a node and return the name of its output."""
        name = into if into is not None else f"{kind}_{len(self._nodes)}"
        # Nodes are named, because tools that quantise a graph tell them apart by name.
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: npt.ArrayLike, dtype: str) -> str:
        """Add a constant and return its name."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def _info(self, name: str, dtype: str, shape: tuple[int | str, ...]) -> object:
        element = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self._onnx.helper.make_tensor_value_info(name, element, list(shape))

    def input(self, name: str, dtype: str, shape: tuple[int | str, ...]) -> str:
        """Declare a graph input."""
        self._inputs.append(self._info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: str, shape: tuple[int | str, ...]) -> None:
        """Declare a graph output."""
        self._outputs.append(self._info(name, dtype, shape))

    def columns(self, value: str, first: int, last: int, axis: int = 1) -> str:
        """Elements ``first .. last - 1`` of an axis: the columns of ``[n, k, ...]``."""
        bounds = [self.constant([edge], "int64") for edge in (first, last)]
        return self.op("Slice", value, *bounds, self.constant([axis], "int64"))

    def weighted_sum(self, value: str, weights: npt.ArrayLike, axis: int = 1) -> str:
        """Sum of the last axis, float32 times ``weights``; the axis is gone.

        Not a ReduceSum: that one's order of adding depends on where a row begins in memory, and so on its place in the
        batch.
        """
        column = self.constant(np.asarray(weights, np.float32)[:, None], "float32")
        return self.op("Squeeze", self.op("MatMul", value, column), self.constant([axis], "int64"))

    def include(self, model: bytes, prefix: str, given: Mapping[str, str]) -> dict[str, str]:
        """Add all nodes of another model, of the same version of ONNX, with ``prefix`` before their names.

        Args:
            model: the other model, serialised.
            prefix: keeps the names of both models apart.
            given: input of the other model -> name of the value in this graph.

        Returns:
            Output of the other model -> its name in this graph.
        """
        other = self._onnx.ModelProto.FromString(model)
        outputs = [output.name for output in other.graph.output]
        other = self._onnx.compose.add_prefix(other, prefix)
        for name, value in given.items():
            self.op("Identity", value, into=prefix + name)
        self._nodes += other.graph.node
        self._constants += other.graph.initializer
        return {name: prefix + name for name in outputs}

    def cast(self, value: str, dtype: str, into: str | None = None) -> str:
        """Convert to a numpy dtype."""
        return self.op("Cast", value, into=into, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def finish(self, name: str) -> bytes:
        """Check the graph and serialise it."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION, producer_name="penstock")
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString())
