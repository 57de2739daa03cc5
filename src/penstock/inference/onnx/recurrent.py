"""Recurrent layers as ONNX nodes, for one step: the carry is an input and an output of the graph.

The carry named ``carry.x`` is the input of this name; the carry behind the row is the output ``next.carry.x``.
"""

from collections.abc import Sequence

from penstock.inference.onnx.writer import Writer
from penstock.policies import GRU, LSTM
from penstock.types import ArraySpec

__all__ = ["FIRST", "declare_memory", "next_name", "remember"]

FIRST = "first"


def next_name(name: str) -> str:
    """The output that holds ``name``: the carry behind a row has another name than the carry before it."""
    return f"next.{name}" if name.startswith("carry.") else name


def declare_memory(writer: Writer, carry: Sequence[ArraySpec]) -> None:
    """Declare ``first`` and the carry as inputs, and the next carry as outputs; nothing without a carry."""
    if carry:
        writer.input(FIRST, "bool", ("n",))
    for spec in carry:
        writer.input(spec.name, spec.dtype, ("n", *spec.shape))
        writer.output(next_name(spec.name), spec.dtype, ("n", *spec.shape))


def remember(writer: Writer, layer: LSTM | GRU, parts: Sequence[str], value: str, names: Sequence[str]) -> str:
    """Write one step of a recurrent layer. Returns its output ``[n, size]``.

    Args:
        writer: writer of the graph.
        layer: the layer.
        parts: names of the constants with its arrays, in the order of the flat vector.
        value: name of the input ``[n, inputs]``.
        names: names of the layer's carry, among the inputs of the graph.
    """
    weight, recurrent, *biases = parts
    keep = writer.op("Unsqueeze", writer.cast(writer.op("Not", FIRST), "float32"), writer.constant([1], "int64"))
    before = [writer.op("Mul", name, keep) for name in names]
    x = writer.op("Gemm", value, weight, biases[0])
    size, behind = layer.size, [next_name(name) for name in names]
    if isinstance(layer, LSTM):
        i, f, g, o = _gates(writer, writer.op("Gemm", before[0], recurrent, x), 4, size)
        kept = writer.op("Mul", writer.op("Sigmoid", f), before[1])
        added = writer.op("Mul", writer.op("Sigmoid", i), writer.op("Tanh", g))
        c = writer.op("Add", kept, added, into=behind[1])
        return writer.op("Mul", writer.op("Sigmoid", o), writer.op("Tanh", c), into=behind[0])
    own = _gates(writer, writer.op("Gemm", before[0], recurrent, biases[1]), 3, size)
    pairs = list(zip(_gates(writer, x, 3, size), own, strict=True))
    r, z = (writer.op("Sigmoid", writer.op("Add", *pair)) for pair in pairs[:2])
    n = writer.op("Tanh", writer.op("Add", pairs[2][0], writer.op("Mul", r, pairs[2][1])))
    # (1 - z) n + z h = n + z (h - n)
    moved = writer.op("Mul", z, writer.op("Sub", before[0], n))
    return writer.op("Add", n, moved, into=behind[0])


def _gates(writer: Writer, values: str, count: int, size: int) -> list[str]:
    """Cut ``[n, count * size]`` into its ``count`` parts."""
    return [writer.columns(values, gate * size, (gate + 1) * size) for gate in range(count)]
