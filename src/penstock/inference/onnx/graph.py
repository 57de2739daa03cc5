"""A policy as an ONNX graph, written from its list of layers: what a backend runs, and what is deployed.

Imports no torch, and `onnx` only on use. Does not run graphs, and does not export a user's own torch module.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.network import (
    Activation,
    Conv2d,
    Encoding,
    Flatten,
    Gaussian,
    Linear,
    Network,
    PolicyGraph,
)
from penstock.types import Array, Box, Spaces

__all__ = ["export", "write"]

_OPSET = 17
_IR_VERSION = 8


class _Writer:
    """Collects nodes and constants of one ONNX graph."""

    def __init__(self) -> None:
        import onnx  # noqa: PLC0415 - importing this module must stay light

        self._onnx: Any = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def op(self, kind: str, *inputs: str, into: str | None = None, **attributes: int | Sequence[int]) -> str:
        """Add a node and return the name of its output."""
        name = into if into is not None else f"{kind}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **attributes))
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

    def cast(self, value: str, dtype: str, into: str | None = None) -> str:
        """Convert to a numpy dtype."""
        return self.op("Cast", value, into=into, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def finish(self, name: str) -> bytes:
        """Check the graph and serialise it."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION, producer_name="penstock")
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString())


class _Record:
    """A published record, written as constants where a graph asks for its parts.

    Parameters are not made inputs of the graph, though that would spare a new session at each load (1.3 ms for 2 x 64
    units, 10.6 ms for a Nature CNN): ONNX Runtime would copy every weight at every run, and with weights that it has
    not packed a row's result depends on how many rows are in the call.
    """

    def __init__(self, writer: _Writer, published: Mapping[str, Array]) -> None:
        self._writer = writer
        self._published = published

    def part(self, network: Network, name: str) -> str:
        """One array of a network's flat vector."""
        found = next(part for part in network.slices() if part.name == name)
        values = self._published[network.name][found.offset :][: int(np.prod(found.shape))]
        return self._writer.constant(values.reshape(found.shape), "float32")

    def moments(self, of: str) -> tuple[str, str]:
        """Mean and ``sqrt(var + 1e-8)`` of a running statistic, float32."""
        deviation = np.sqrt(self._published[f"{of}_var"] + 1e-8)
        return self._writer.constant(self._published[f"{of}_mean"], "float32"), self._writer.constant(
            deviation, "float32"
        )


def _encode(writer: _Writer, graph: PolicyGraph, record: _Record, fields: Mapping[str, str]) -> str:
    """Encoded and normalised observations, ``[n, features]`` or ``[n, C, H, W]``. ``fields`` maps fields to values."""
    parts = [_encode_field(writer, part, fields[part.field]) for part in graph.encoding]
    if graph.encoding[0].kind == "image":
        if graph.normalize_obs or len(parts) > 1:
            raise ValueError("an image stands alone, and is not normalised by running statistics")
        return parts[0]
    encoded = parts[0] if len(parts) == 1 else writer.op("Concat", *parts, axis=1)
    if not graph.normalize_obs:
        return encoded
    mean, deviation = record.moments("obs")
    scaled = writer.op("Div", writer.op("Sub", encoded, mean), deviation)
    return writer.op("Clip", scaled, writer.constant(-10.0, "float32"), writer.constant(10.0, "float32"))


def _encode_field(writer: _Writer, part: Encoding, value: str) -> str:
    if part.kind == "flat":
        return writer.op("Reshape", writer.cast(value, "float32"), writer.constant([-1, part.size], "int64"))
    if part.kind == "one_hot":
        column = writer.op("Reshape", value, writer.constant([-1, 1], "int64"))
        choices = writer.constant(np.arange(part.start, part.start + part.size)[None], "int64")
        return writer.cast(writer.op("Equal", column, choices), "float32")
    pixels = writer.op("Mul", writer.cast(value, "float32"), writer.constant(np.float32(1.0 / 255.0), "float32"))
    return pixels if part.channels_first else writer.op("Transpose", pixels, perm=[0, 3, 1, 2])


def _run(writer: _Writer, network: Network, record: _Record, value: str) -> str:
    """The network's outputs ``[n, outputs]``."""
    for index, layer in enumerate(network.layers):
        if isinstance(layer, Flatten):
            value = writer.op("Flatten", value, axis=1)
        elif isinstance(layer, Activation):
            value = _activate(writer, layer.name, value)
        else:
            weight, bias = record.part(network, f"{index}.weight"), record.part(network, f"{index}.bias")
            if isinstance(layer, Linear):
                value = writer.op("Gemm", value, weight, bias)
            elif isinstance(layer, Conv2d):
                value = writer.op("Conv", value, weight, bias, strides=[layer.stride, layer.stride])
    return value


def _activate(writer: _Writer, name: str, value: str) -> str:
    if name == "silu":
        return writer.op("Mul", value, writer.op("Sigmoid", value))
    if name == "gelu":
        erf = writer.op("Erf", writer.op("Mul", value, writer.constant(np.sqrt(0.5), "float32")))
        half = writer.op("Mul", value, writer.constant(0.5, "float32"))
        return writer.op("Mul", half, writer.op("Add", erf, writer.constant(1.0, "float32")))
    return writer.op({"tanh": "Tanh", "relu": "Relu", "elu": "Elu", "sigmoid": "Sigmoid"}[name], value)


def _columns(writer: _Writer, value: str, first: int, last: int) -> str:
    bounds = [writer.constant([edge], "int64") for edge in (first, last)]
    return writer.op("Slice", value, *bounds, writer.constant([1], "int64"))


def _head_and_value(writer: _Writer, graph: PolicyGraph, record: _Record, fields: Mapping[str, str]) -> str:
    """The head's parameters ``[n, size]``; declares and writes the output ``value``."""
    size = graph.head.outputs
    encoded = _encode(writer, graph, record, fields)
    outputs = _run(writer, graph.actor, record, encoded)
    if graph.critic is None:
        head, value = _columns(writer, outputs, 0, size), _columns(writer, outputs, size, size + 1)
    else:
        head, value = outputs, _run(writer, graph.critic, record, encoded)
    if graph.normalize_value:
        mean, deviation = record.moments("value")
        value = writer.op("Add", writer.op("Mul", value, deviation), mean)
    writer.op("Reshape", value, writer.constant([-1], "int64"), into="value")
    return head


def write(graph: PolicyGraph, published: Mapping[str, Array]) -> bytes:
    """``act`` of ``graph`` as a serialised ONNX model.

    Inputs: each observation field (flat: float32 ``[n, size]``; one-hot: int64 ``[n]``; image: uint8, four dimensions),
    ``noise`` float32 ``[n, size]``, ``explore`` float32 ``[n]``. Outputs: ``action``, ``log_prob``, ``value``.

    Args:
        graph: the policy.
        published: its parameters and statistics, written as constants.
    """
    writer = _Writer()
    record = _Record(writer, published)
    for part in graph.encoding:
        shapes: dict[str, tuple[str, tuple[int | str, ...]]] = {
            "flat": ("float32", ("n", part.size)),
            "one_hot": ("int64", ("n",)),
            "image": ("uint8", ("n", f"{part.field}_1", f"{part.field}_2", f"{part.field}_3")),
        }
        writer.input(part.field, *shapes[part.kind])
    size = graph.head.outputs
    noise, explore = writer.input("noise", "float32", ("n", size)), writer.input("explore", "float32", ("n",))
    head = _head_and_value(writer, graph, record, {part.field: part.field for part in graph.encoding})
    scale = writer.op("Reshape", explore, writer.constant([-1, 1], "int64"))
    z = writer.op("Mul", scale, noise)
    if isinstance(graph.head, Gaussian):
        _sample_gaussian(writer, head, z, record.part(graph.actor, "log_std"), size)
        writer.output("action", "float32", ("n", size))
    else:
        _sample_categorical(writer, head, z)
        writer.output("action", "int64", ("n",))
    writer.output("log_prob", "float32", ("n",))
    writer.output("value", "float32", ("n",))
    return writer.finish("act")


def _sample_gaussian(writer: _Writer, mean: str, z: str, log_std: str, size: int) -> None:
    writer.op("Add", mean, writer.op("Mul", z, writer.op("Exp", log_std)), into="action")
    axis = writer.constant([1], "int64")
    squares = writer.op("ReduceSum", writer.op("Mul", z, z), axis, keepdims=0)
    spread = writer.op("ReduceSum", log_std, keepdims=0)
    constant = writer.op("Add", spread, writer.constant(0.5 * size * np.log(2.0 * np.pi), "float32"))
    half = writer.op("Mul", squares, writer.constant(-0.5, "float32"))
    writer.op("Sub", half, constant, into="log_prob")


def _sample_categorical(writer: _Writer, logits: str, z: str) -> None:
    action = writer.op("ArgMax", writer.op("Add", logits, z), axis=1, keepdims=0, into="action")
    axis = writer.constant([1], "int64")
    column = writer.op("Unsqueeze", action, axis)
    chosen = writer.op("GatherElements", writer.op("LogSoftmax", logits, axis=1), column, axis=1)
    writer.op("Squeeze", chosen, axis, into="log_prob")


def export(graph: PolicyGraph, spaces: Spaces, published: Mapping[str, Array]) -> bytes:
    """The policy as it is deployed: a serialised ONNX model of the greedy action.

    Inputs: the observation fields as the environment gives them, ``[n, ...]`` in their own dtype. Outputs: ``action``
    ``[n, ...]`` in the environment's units and dtype, and ``value`` float32 ``[n]``.
    """
    writer = _Writer()
    for spec in spaces.obs_specs():
        writer.input(spec.name, spec.dtype, ("n", *spec.shape))
    fields = {spec.name: spec.name for spec in spaces.obs_specs()}
    head = _head_and_value(writer, graph, _Record(writer, published), fields)
    space = spaces.action
    if not isinstance(space, Box):
        chosen = writer.op("ArgMax", head, axis=1, keepdims=0)
        writer.op("Add", chosen, writer.constant(space.start, "int64"), into="action")
        writer.output("action", "int64", ("n",))
    else:
        _greedy_box(writer, head, space)
        writer.output("action", space.dtype, ("n", *space.shape))
    writer.output("value", "float32", ("n",))
    return writer.finish("policy")


def _greedy_box(writer: _Writer, mean: str, space: Box) -> None:
    """`penstock.kernels.actions.to_environment` as ONNX nodes."""
    value = writer.cast(mean, "float64")
    if space.bounded:
        low, high = (np.broadcast_to(np.asarray(edge, np.float64), (space.size,)) for edge in (space.low, space.high))
        unit = writer.op("Clip", value, writer.constant(-1.0, "float64"), writer.constant(1.0, "float64"))
        share = writer.op(
            "Div", writer.op("Add", unit, writer.constant(1.0, "float64")), writer.constant(2.0, "float64")
        )
        value = writer.op("Mul", share, writer.constant(high - low, "float64"))
        value = writer.op("Add", value, writer.constant(low, "float64"))
        value = writer.op("Min", value, writer.constant(high, "float64"))
    if not np.issubdtype(np.dtype(space.dtype), np.floating):
        value = writer.op("Round", value)
    shaped = writer.op("Reshape", value, writer.constant([-1, *space.shape], "int64"))
    writer.cast(shaped, space.dtype, into="action")
