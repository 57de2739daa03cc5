"""Makes a graph smaller: int8 by ONNX Runtime's static quantisation, fp16 by its converter. Measures nothing.

Only the networks change. Observations are encoded and normalised, and actions made of the last outputs, in float32.

- int8: convolutions and products with a weight.

  - Inputs have 8 bits. All elements of an input share one range, which is measured on the given observations.
  - Weights have 7 bits: x86 processors without VNNI add two 8-bit products in 16 bits, and larger sums are cut off.
  - Two kinds of product stay in float32. Products of observed vectors: their elements differ too much for one range.
    The last products: their outputs are the action.

- fp16: everything from the first to the last product with a weight. Products of observed vectors stay in float32: an
  element may be larger than 65,504, the largest number of fp16. On a CPU, ONNX Runtime computes in float32 between
  casts. So a test on a CPU does not show numbers that overflow.
- An ``LSTM`` operation of a user's own module is quantised dynamically: ONNX Runtime has no static form of it. A
  ``GRU`` operation stays as it is. The recurrent layers of penstock are products and activations, so they are
  quantised like the others.

Docs: https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html and float16.html.
"""

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from penstock.errors import ConfigError
from penstock.inference.onnx import CPU
from penstock.types import Array

__all__ = ["PRECISIONS", "Precision", "quantized"]

Precision: TypeAlias = Literal["int8", "fp16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_WEIGHED = frozenset({"Conv", "Gemm", "MatMul"})
_RECURRENT = frozenset({"LSTM", "GRU"})
CALIBRATION_ROWS = 32
"""Rows of one run while ranges are found."""


def quantized(model: bytes, precision: Precision, inputs: Mapping[str, Array]) -> bytes:
    """The graph in another precision. Its inputs and outputs keep their names and dtypes.

    Args:
        model: a serialised ONNX graph.
        precision: of the result.
        inputs: input -> ``[rows, ...]``: the observations from which int8 learns the range of each value.

    Raises:
        ConfigError: the graph has no product with a weight that could have this precision.
    """
    import onnx  # noqa: PLC0415 - importing this module must stay light

    with _quiet():
        folded = _folded(model)
        if not _weighed(folded.graph):
            raise ConfigError(f"the policy has no layer that {precision} could make smaller")
        found = _int8(folded, inputs) if precision == "int8" else _fp16(folded)
    onnx.checker.check_model(found)
    return bytes(found.SerializeToString())


def _folded(model: bytes) -> Any:  # noqa: ANN401 - onnx has no types
    """The model with all constants computed: a user's own module transposes and renames its weights.

    Every node has a name of its own.
    """
    import onnxruntime  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.onnx"
        options = onnxruntime.SessionOptions()
        # Basic: what comes out has operations of ONNX only, and runs anywhere.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(model, options, providers=[CPU])
        folded = _read(path)
    for place, node in enumerate(folded.graph.node):
        node.name = f"{node.op_type}_{place}"
    return folded


def _int8(model: Any, inputs: Mapping[str, Array]) -> Any:  # noqa: ANN401
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static  # noqa: PLC0415

    apart = _last(model.graph) | _first(model.graph)
    nodes = [node.name for node in _weighed(model.graph) if node.op_type in _WEIGHED and node.name not in apart]
    if not nodes and not any(node.op_type == "LSTM" for node in model.graph.node):
        raise ConfigError("int8 keeps the first and the last layer in float32, and the policy has no other; try fp16")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.onnx"
        if nodes:
            quantize_static(
                model,
                path,
                _reader(inputs),
                quant_format=QuantFormat.QDQ,
                nodes_to_quantize=nodes,
                op_types_to_quantize=sorted(_WEIGHED),
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                reduce_range=True,
                # The outputs of convolutions are quantised, because ONNX Runtime has no kernel for them otherwise.
                extra_options={"OpTypesToExcludeOutputQuantization": ["Gemm", "MatMul"]},
            )
            model = _read(path)
        if any(node.op_type == "LSTM" for node in model.graph.node):
            quantize_dynamic(model, path, op_types_to_quantize=["LSTM"])
            model = _read(path)
    return model


def _fp16(model: Any) -> Any:  # noqa: ANN401
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415

    first = _first(model.graph)
    halved = {node.name for node in _weighed(model.graph)} - first
    if not halved:
        raise ConfigError("fp16 keeps the first layer in float32, and the policy has no other")
    inside = (_behind(model.graph, halved) & _before(model.graph, halved)) - first
    outside = [node.name for node in model.graph.node if node.name not in inside]
    model = convert_float_to_float16(model, keep_io_types=True, op_block_list=[], node_block_list=outside)
    _straighten(model.graph, inside | set(outside))
    return model


def _straighten(graph: Any, own: set[str]) -> None:  # noqa: ANN401
    """Remove detours over fp16 and put the nodes into order.

    The converter casts each input of the graph to fp16, and back where a node stays in float32. So a large observation
    would become infinite.

    Args:
        graph: what the converter has made.
        own: names of the nodes that it was given.
    """
    from onnx import TensorProto  # noqa: PLC0415

    added = {node.output[0]: node for node in graph.node if node.op_type == "Cast" and node.name not in own}
    for node in added.values():
        before = added.get(node.input[0])
        if before is not None and (before.attribute[0].i, node.attribute[0].i) == (
            TensorProto.FLOAT16,
            TensorProto.FLOAT,
        ):
            node.op_type = "Identity"
            node.input[0] = before.input[0]
            del node.attribute[:]
    used = {name for node in graph.node for name in node.input} | {given.name for given in graph.output}
    # The converter casts a value once for each node that takes it, under one name.
    waiting = list({node.output[0]: node for node in graph.node if used & set(node.output)}.values())
    known = {tensor.name for tensor in graph.initializer} | {given.name for given in graph.input} | {""}
    del graph.node[:]
    while waiting:
        graph.node.extend(node for node in waiting if known.issuperset(node.input))
        known.update(name for node in graph.node for name in node.output)
        waiting = [node for node in waiting if not known.issuperset(node.output)]


def _read(path: Path) -> Any:  # noqa: ANN401
    import onnx  # noqa: PLC0415

    return onnx.load(path)


def _reader(inputs: Mapping[str, Array]) -> Any:  # noqa: ANN401
    from onnxruntime.quantization import CalibrationDataReader  # noqa: PLC0415

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Hands out the observations in batches."""

        def __init__(self) -> None:
            rows = len(next(iter(inputs.values())))
            self._starts = iter(range(0, rows, CALIBRATION_ROWS))

        def get_next(self) -> dict[str, Array] | None:
            """The next batch; ``None`` behind the last one."""
            start = next(self._starts, None)
            if start is None:
                return None
            return {name: np.ascontiguousarray(rows[start:][:CALIBRATION_ROWS]) for name, rows in inputs.items()}

    return Reader()


def _weighed(graph: Any) -> list[Any]:  # noqa: ANN401
    """The nodes that multiply by a weight."""
    constants = {tensor.name for tensor in graph.initializer}
    return [
        node
        for node in graph.node
        if node.op_type in _RECURRENT or (node.op_type in _WEIGHED and constants & set(node.input[:2]))
    ]


def _first(graph: Any) -> set[str]:  # noqa: ANN401
    """The names of the products whose input is observed: nothing with a weight lies between."""
    fields = {given.name for given in graph.input if not given.name.startswith("carry.") and given.name != "first"}
    weighed = {node.name for node in _weighed(graph)}
    observed = set(fields)
    for node in graph.node:
        if node.name not in weighed and observed & set(node.input):
            observed |= set(node.output)
    return {node.name for node in _weighed(graph) if node.op_type in {"Gemm", "MatMul"} and node.input[0] in observed}


def _last(graph: Any) -> set[str]:  # noqa: ANN401
    """The names of the nodes with a weight behind which there is no other one."""
    weighed = {node.name for node in _weighed(graph)}
    needed = {name for node in graph.node if node.name in weighed for name in node.input}
    return weighed - _before(graph, {node.name for node in graph.node if needed & set(node.output)})


def _behind(graph: Any, names: set[str]) -> set[str]:  # noqa: ANN401
    """These nodes, and all that depend on them."""
    found, values = set(names), {name for node in graph.node if node.name in names for name in node.output}
    for node in graph.node:
        if values & set(node.input):
            found.add(node.name)
            values |= set(node.output)
    return found


def _before(graph: Any, names: set[str]) -> set[str]:  # noqa: ANN401
    """These nodes, and all that they depend on."""
    found, values = set(names), {name for node in graph.node if node.name in names for name in node.input}
    for node in reversed(graph.node):
        if values & set(node.output):
            found.add(node.name)
            values |= set(node.input)
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep ONNX Runtime's tools from advising to prepare the graph, which is written by hand."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)
