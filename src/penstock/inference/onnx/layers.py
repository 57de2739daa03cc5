"""Layers as ONNX nodes: a network from the inputs of its branches to its outputs."""

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.inference.onnx.encoding import Input
from penstock.inference.onnx.record import Record
from penstock.inference.onnx.recurrent import remember
from penstock.inference.onnx.writer import Writer
from penstock.policies import (
    GRU,
    LSTM,
    Activation,
    Attention,
    Conv2d,
    Dropout,
    Dueling,
    Embedding,
    Flatten,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    MeanPool,
    Network,
    Residual,
)
from penstock.policies.layers import LAYER_NORM_EPSILON

__all__ = ["run"]

UNSEEN = -1e9
"""Score of an entity that is not there, as in torch."""


def run(writer: Writer, network: Network, record: Record, inputs: Sequence[Input]) -> str:
    """The network's outputs ``[n, outputs]``."""
    layers = _Nodes(writer, network, record)
    if network.branches:
        pairs = zip(network.branches, inputs, strict=True)
        outputs = [layers.through(branch.layers, given.x, given.mask) for branch, given in pairs]
        x = outputs[0] if len(outputs) == 1 else writer.op("Concat", *outputs, axis=1)
    else:
        x = inputs[0].x
    return layers.through(network.layers, x, None)


class _Nodes:
    """Writes the layers of one network, which take its arrays one after the other."""

    def __init__(self, writer: Writer, network: Network, record: Record) -> None:
        self._writer = writer
        self._network = network
        self._parts: Iterator[str] = (record.part(network, part.name) for part in network.slices())

    def _take(self, count: int) -> list[str]:
        return [next(self._parts) for _ in range(count)]

    def through(self, layers: Sequence[Layer], x: str, mask: str | None) -> str:
        """Output of ``layers``. With a mask ``x`` is a set ``[n, entities, width]``, until it is pooled."""
        for index, layer in enumerate(layers):
            # Acting drops nothing.
            x = x if isinstance(layer, Dropout) else self._after(layer, x, mask, index)
            mask = None if isinstance(layer, MeanPool) else mask
        return x

    def _after(self, layer: Layer, x: str, mask: str | None, index: int) -> str:
        writer = self._writer
        match layer:
            case Linear():
                return self._linear(x, mask)
            case Activation(name):
                return _activate(writer, name, x)
            case Conv2d(stride=stride, padding=padding):
                return writer.op("Conv", x, *self._take(2), strides=[stride, stride], pads=[padding] * 4)
            case Flatten():
                return writer.op("Flatten", x, axis=1)
            case LSTM() | GRU():
                names = [f"carry.{self._network.name}.{index}.{name}" for name in layer.carried]
                return remember(writer, layer, self._take(3 if isinstance(layer, LSTM) else 4), x, names)
            case Dueling():
                return _duel(writer, layer, x)
            case Residual(layers):
                return writer.op("Add", x, self.through(layers, x, mask))
            case MaxPool(kernel, stride, padding):
                sides = [kernel, kernel]
                return writer.op("MaxPool", x, kernel_shape=sides, strides=[stride, stride], pads=[padding] * 4)
            case LayerNorm():
                return writer.op("LayerNormalization", x, *self._take(2), axis=-1, epsilon=LAYER_NORM_EPSILON)
            case Embedding():
                return writer.op("Gather", *self._take(1), x, axis=0)
            case Attention():
                return self._attend(layer, x, mask)
            case MeanPool():
                return _mean(writer, x, _of_set(layer, mask))
        raise TypeError(f"ONNX Runtime does not run the layer {layer}")

    def _linear(self, x: str, mask: str | None) -> str:
        weight, bias = self._take(2)
        if mask is None:
            return self._writer.op("Gemm", x, weight, bias)
        return self._writer.op("Add", self._writer.op("MatMul", x, weight), bias)

    def _attend(self, layer: Attention, x: str, mask: str | None) -> str:
        writer = self._writer
        weight, bias, output, output_bias = self._take(4)
        width, size = layer.width, layer.width // layer.heads
        joined = writer.op("Add", writer.op("MatMul", x, weight), bias)
        shape = writer.constant([0, 0, layer.heads, size], "int64")
        q, k, v = (
            writer.op("Reshape", writer.columns(joined, part * width, (part + 1) * width, axis=2), shape)
            for part in range(3)
        )
        q, v = (writer.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        scores = writer.op("MatMul", q, writer.op("Transpose", k, perm=[0, 2, 3, 1]))
        scores = writer.op("Mul", scores, writer.constant(size**-0.5, "float32"))
        seen = writer.op("Unsqueeze", _of_set(layer, mask), writer.constant([1, 2], "int64"))
        share = writer.op("Softmax", writer.op("Where", seen, scores, writer.constant(UNSEEN, "float32")), axis=3)
        merged = writer.op("Transpose", writer.op("MatMul", share, v), perm=[0, 2, 1, 3])
        merged = writer.op("Reshape", merged, writer.constant([0, 0, width], "int64"))
        return writer.op("Add", writer.op("MatMul", merged, output), output_bias)


def _of_set(layer: Layer, mask: str | None) -> str:
    if mask is None:
        raise ValueError(f"the layer {layer} is for a set of entities, and its input is none")
    return mask


def _mean(writer: Writer, x: str, mask: str) -> str:
    axis = writer.constant([1], "int64")
    seen = writer.cast(mask, "float32")
    # A product, because the order in which ReduceSum adds may depend on a row's place. A count is exact in any order.
    total = writer.op("Squeeze", writer.op("MatMul", writer.op("Unsqueeze", seen, axis), x), axis)
    count = writer.op("ReduceSum", seen, axis, keepdims=1)
    return writer.op("Div", total, writer.op("Max", count, writer.constant(1.0, "float32")))


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
    # A product, because the order in which ReduceMean adds may depend on a row's place.
    ones = writer.constant(np.ones((1, layer.n)), "float32")
    mean = writer.op("Div", writer.op("MatMul", ones, advantage), writer.constant(layer.n, "float32"))
    return writer.op("Flatten", writer.op("Add", state, writer.op("Sub", advantage, mean)), axis=1)
