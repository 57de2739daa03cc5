"""Writes a policy as an ONNX graph, from its list of layers: for the backend, and for deployment.

Imports no torch, and `onnx` only on use. Does not run graphs. Does not export a user's own torch module.
"""

from collections.abc import Mapping

import numpy as np

from penstock.inference.onnx.heads import greedy, sample
from penstock.inference.onnx.writer import Writer
from penstock.policies import (
    Activation,
    Conv2d,
    Dueling,
    Encoding,
    Flatten,
    Gaussian,
    Linear,
    Network,
    PolicyGraph,
)
from penstock.types import Array, Spaces

__all__ = ["export", "write"]


class _Record:
    """A published record, whose parts are written into a graph as constants.

    As inputs of the graph, parameters would need no new session at each load (1.3 ms for 2 x 64 units, 10.6 ms for a
    Nature CNN). They are constants for two reasons. ONNX Runtime copies every input at every run. And it does not pack
    inputs, so that a row's result would depend on the number of rows in the call.
    """

    def __init__(self, writer: Writer, published: Mapping[str, Array]) -> None:
        self._writer = writer
        self._published = published

    def part(self, network: Network, name: str) -> str:
        """Write one array of a network's flat vector; the name of its constant."""
        found = next(part for part in network.slices() if part.name == name)
        values = self._published[network.name][found.offset :][: int(np.prod(found.shape))]
        return self._writer.constant(values.reshape(found.shape), "float32")

    def moments(self, of: str) -> tuple[str, str]:
        """Write mean and ``sqrt(var + 1e-8)`` of a running statistic, float32; the names of both constants."""
        deviation = np.sqrt(self._published[f"{of}_var"] + 1e-8)
        return self._writer.constant(self._published[f"{of}_mean"], "float32"), self._writer.constant(
            deviation, "float32"
        )


def _encode(writer: Writer, graph: PolicyGraph, record: _Record, fields: Mapping[str, str]) -> str:
    """Encoded and normalised observations, ``[n, features]`` or ``[n, C, H, W]``. ``fields``: field -> value's name."""
    parts = [_encode_field(writer, part, fields[part.field]) for part in graph.encoding]
    if graph.encoding[0].kind == "image":
        if graph.normalize_obs or len(parts) > 1:
            raise ValueError("an image must be the only field, and running statistics do not normalise it")
        return parts[0]
    encoded = parts[0] if len(parts) == 1 else writer.op("Concat", *parts, axis=1)
    if not graph.normalize_obs:
        return encoded
    mean, deviation = record.moments("obs")
    scaled = writer.op("Div", writer.op("Sub", encoded, mean), deviation)
    return writer.op("Clip", scaled, writer.constant(-10.0, "float32"), writer.constant(10.0, "float32"))


def _encode_field(writer: Writer, part: Encoding, value: str) -> str:
    if part.kind == "flat":
        return writer.op("Reshape", writer.cast(value, "float32"), writer.constant([-1, part.size], "int64"))
    if part.kind == "one_hot":
        column = writer.op("Reshape", value, writer.constant([-1, 1], "int64"))
        choices = writer.constant(np.arange(part.start, part.start + part.size)[None], "int64")
        return writer.cast(writer.op("Equal", column, choices), "float32")
    pixels = writer.op("Mul", writer.cast(value, "float32"), writer.constant(np.float32(1.0 / 255.0), "float32"))
    return pixels if part.channels_first else writer.op("Transpose", pixels, perm=[0, 3, 1, 2])


def _run(writer: Writer, network: Network, record: _Record, value: str) -> str:
    """The network's outputs ``[n, outputs]``."""
    for index, layer in enumerate(network.layers):
        if isinstance(layer, Flatten):
            value = writer.op("Flatten", value, axis=1)
        elif isinstance(layer, Activation):
            value = _activate(writer, layer.name, value)
        elif isinstance(layer, Dueling):
            value = _duel(writer, layer, value)
        else:
            weight, bias = record.part(network, f"{index}.weight"), record.part(network, f"{index}.bias")
            if isinstance(layer, Linear):
                value = writer.op("Gemm", value, weight, bias)
            elif isinstance(layer, Conv2d):
                value = writer.op("Conv", value, weight, bias, strides=[layer.stride, layer.stride])
    return value


def _activate(writer: Writer, name: str, value: str) -> str:
    if name == "silu":
        return writer.op("Mul", value, writer.op("Sigmoid", value))
    if name == "gelu":
        erf = writer.op("Erf", writer.op("Mul", value, writer.constant(np.sqrt(0.5), "float32")))
        half = writer.op("Mul", value, writer.constant(0.5, "float32"))
        return writer.op("Mul", half, writer.op("Add", erf, writer.constant(1.0, "float32")))
    return writer.op({"tanh": "Tanh", "relu": "Relu", "elu": "Elu", "sigmoid": "Sigmoid"}[name], value)


def _duel(writer: Writer, layer: Dueling, value: str) -> str:
    parts = writer.op("Reshape", value, writer.constant([-1, 1 + layer.n, layer.atoms], "int64"))
    state, advantage = writer.columns(parts, 0, 1), writer.columns(parts, 1, 1 + layer.n)
    centred = writer.op("Sub", advantage, writer.op("ReduceMean", advantage, axes=[1], keepdims=1))
    return writer.op("Flatten", writer.op("Add", state, centred), axis=1)


def _outputs(writer: Writer, graph: PolicyGraph, record: _Record, fields: Mapping[str, str]) -> str:
    """The head's outputs ``[n, k]``. Declares and writes the output ``value`` if the policy gives one."""
    encoded = _encode(writer, graph, record, fields)
    outputs = _run(writer, graph.actor, record, encoded)
    if not graph.gives_value:
        return outputs
    if graph.critic is None:
        size = graph.head.outputs
        outputs, value = writer.columns(outputs, 0, size), writer.columns(outputs, size, size + 1)
    else:
        value = _run(writer, graph.critic, record, encoded)
    if graph.normalize_value:
        mean, deviation = record.moments("value")
        value = writer.op("Add", writer.op("Mul", value, deviation), mean)
    writer.op("Reshape", value, writer.constant([-1], "int64"), into="value")
    writer.output("value", "float32", ("n",))
    return outputs


def write(graph: PolicyGraph, published: Mapping[str, Array]) -> bytes:
    """``act`` of ``graph`` as a serialised ONNX model. Its outputs are `PolicyGraph.outputs`.

    Inputs: each observation field (flat: float32 ``[n, size]``; one-hot: int64 ``[n]``; image: uint8, four dimensions),
    ``noise`` float32 ``[n, k]``, ``explore`` float32 ``[n]``.

    Args:
        graph: the policy.
        published: the policy's parameters and statistics, which become constants.
    """
    writer = Writer()
    record = _Record(writer, published)
    for part in graph.encoding:
        shapes: dict[str, tuple[str, tuple[int | str, ...]]] = {
            "flat": ("float32", ("n", part.size)),
            "one_hot": ("int64", ("n",)),
            "image": ("uint8", ("n", f"{part.field}_1", f"{part.field}_2", f"{part.field}_3")),
        }
        writer.input(part.field, *shapes[part.kind])
    outputs = _outputs(writer, graph, record, {part.field: part.field for part in graph.encoding})
    log_std = record.part(graph.actor, "log_std") if isinstance(graph.head, Gaussian) else None
    sample(writer, graph.head, outputs, log_std)
    return writer.finish("act")


def export(graph: PolicyGraph, spaces: Spaces, published: Mapping[str, Array]) -> bytes:
    """The policy for deployment: a serialised ONNX model of the greedy action.

    Inputs: the observation fields as the environment gives them, ``[n, ...]`` in their own dtype. Outputs: ``action``
    ``[n, ...]`` in the environment's units and dtype, and ``value`` float32 ``[n]`` if the policy gives one.
    """
    writer = Writer()
    for spec in spaces.obs_specs():
        writer.input(spec.name, spec.dtype, ("n", *spec.shape))
    fields = {spec.name: spec.name for spec in spaces.obs_specs()}
    outputs = _outputs(writer, graph, _Record(writer, published), fields)
    greedy(writer, graph.head, outputs, spaces.action)
    return writer.finish("policy")
