"""Encodings of observation fields as ONNX nodes; `penstock.torch_networks.encoding` computes the same in torch."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from penstock.inference.onnx.record import Record
from penstock.inference.onnx.writer import Writer
from penstock.policies import Branch, Encoding, Network, PolicyGraph
from penstock.policies.encoding import VECTOR, columns_of

__all__ = ["Input", "declare_fields", "encode", "field_dtype", "inputs_of"]

_DTYPES = {"flat": "float32", "image": "uint8", "set": "float32", "mask": "float32"}
"""Dtypes of the inputs of ``act``. Those of other kinds are int64."""


class Input(NamedTuple):
    """The input of a branch, or of the layers of a network without branches: names of values."""

    x: str
    mask: str | None
    """bool ``[n, entities]`` of a set."""


def declare_fields(writer: Writer, graph: PolicyGraph) -> None:
    """Declare the observation fields as inputs of ``act``, in the dtypes that `field_dtype` gives."""
    for part in graph.encoding:
        writer.input(part.field, field_dtype(part), _shape(part))


def field_dtype(part: Encoding) -> str:
    """The dtype in which ``act`` takes a field."""
    if part.kind == "raw":
        return "float32" if part.dtype.startswith("float") else part.dtype
    return _DTYPES.get(part.kind, "int64")


def _shape(part: Encoding) -> tuple[int | str, ...]:
    if part.kind == "flat":
        return ("n", part.size)
    if part.kind == "image":
        return ("n", f"{part.field}_1", f"{part.field}_2", f"{part.field}_3")
    return ("n", *part.shape)


def encode(writer: Writer, graph: PolicyGraph, record: Record, fields: Mapping[str, str]) -> dict[str, str]:
    """`VECTOR` ``[n, features]``, normalised, and the other fields by name. ``fields``: field -> value's name."""
    found: dict[str, str] = {}
    vectors = [_vector(writer, part, fields[part.field]) for part in graph.encoding if part.is_vector]
    if vectors:
        found[VECTOR] = vectors[0] if len(vectors) == 1 else writer.op("Concat", *vectors, axis=1)
        if graph.normalize_obs:
            mean, deviation = record.moments("obs")
            scaled = writer.op("Div", writer.op("Sub", found[VECTOR], mean), deviation)
            edges = writer.constant(-10.0, "float32"), writer.constant(10.0, "float32")
            found[VECTOR] = writer.op("Clip", scaled, *edges)
    for part in graph.encoding:
        if not part.is_vector:
            found[part.field] = _field(writer, part, fields[part.field])
    return found


def inputs_of(writer: Writer, graph: PolicyGraph, network: Network, features: Mapping[str, str]) -> list[Input]:
    """One input for each branch; for a user's own module, one for each field; else one for all layers."""
    if network.own is not None:
        return [Input(features[name], None) for name in network.own.fields]
    if not network.branches:
        values = list(features.values())
        return [Input(values[0] if len(values) == 1 else writer.op("Concat", *values, axis=1), None)]
    return [_of_branch(writer, graph, branch, features) for branch in network.branches]


def _of_branch(writer: Writer, graph: PolicyGraph, branch: Branch, features: Mapping[str, str]) -> Input:
    first = next(part for part in graph.encoding if part.field == branch.fields[0])
    if first.is_vector:
        columns = columns_of(graph.encoding, branch.fields)
        if columns == [(0, graph.features)]:
            return Input(features[VECTOR], None)
        parts = [writer.columns(features[VECTOR], low, high) for low, high in columns]
        return Input(parts[0] if len(parts) == 1 else writer.op("Concat", *parts, axis=1), None)
    x = features[first.field]
    if first.kind != "set":
        return Input(x, None)
    if branch.mask:
        return Input(x, features[branch.mask])
    largest = writer.op("ReduceMax", writer.op("Abs", x), writer.constant([2], "int64"), keepdims=0)
    return Input(x, writer.op("Greater", largest, writer.constant(0.0, "float32")))


def _vector(writer: Writer, part: Encoding, value: str) -> str:
    if part.kind == "flat":
        return writer.op("Reshape", writer.cast(value, "float32"), writer.constant([-1, part.size], "int64"))
    column = writer.op("Reshape", value, writer.constant([-1, 1], "int64"))
    if part.kind == "one_hot":
        choices = writer.constant(np.arange(part.start, part.start + part.size)[None], "int64")
        return writer.cast(writer.op("Equal", column, choices), "float32")
    number = writer.op("Sub", column, writer.constant(part.start, "int64"))
    shifted = writer.op("Div", number, writer.constant(2 ** np.arange(part.size)[None], "int64"))
    return writer.cast(writer.op("Mod", shifted, writer.constant(2, "int64")), "float32")


def _field(writer: Writer, part: Encoding, value: str) -> str:
    match part.kind:
        case "image":
            factor = writer.constant(np.float32(1.0 / 255.0), "float32")
            pixels = writer.op("Mul", writer.cast(value, "float32"), factor)
            return pixels if part.channels_first else writer.op("Transpose", pixels, perm=[0, 3, 1, 2])
        case "spatial":
            height, width = part.shape[:2]
            channels = part.size // (height * width)
            grid = writer.op(
                "Reshape", writer.cast(value, "int64"), writer.constant([-1, *part.shape[:2], channels], "int64")
            )
            planes = writer.op(
                "Unsqueeze", writer.op("Transpose", grid, perm=[0, 3, 1, 2]), writer.constant([2], "int64")
            )
            numbers = np.arange(part.start, part.start + part.values).reshape(-1, 1, 1)
            found = writer.cast(writer.op("Equal", planes, writer.constant(numbers, "int64")), "float32")
            shape = writer.constant([-1, channels * part.values, height, width], "int64")
            return writer.op("Reshape", found, shape)
        case "embedding":
            number = writer.op("Reshape", writer.cast(value, "int64"), writer.constant([-1], "int64"))
            return writer.op("Sub", number, writer.constant(part.start, "int64"))
        case "mask":
            number = writer.cast(value, "float32")
            return writer.op("Not", writer.op("Equal", number, writer.constant(0.0, "float32")))
        case "raw":
            return writer.cast(value, field_dtype(part))
    return writer.cast(value, "float32")
