"""Requests of the Open Inference Protocol as bytes: what protobuf writes, what is nearly right, and what is hostile."""

import struct
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from penstock.serving.server.protocols.open_inference.grpc.messages import message

VALUES_OF = {
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
}
CONTENTS_OF = {
    "bool": "bool_contents",
    "int32": "int_contents",
    "int64": "int64_contents",
    "uint32": "uint_contents",
    "uint64": "uint64_contents",
    "float": "fp32_contents",
    "double": "fp64_contents",
}
ROW = struct.pack("<3f", 0.1, 0.2, 0.3)
TENSOR = {"name": "obs", "shape": [1, 3], "datatype": "FP32"}
NAMES = st.text(max_size=300)
SIZES = st.sampled_from([0, 1, 3, 4, -1, 2**31, 2**62, -(2**63)])
PARAMETERS = {
    "bool_param": st.booleans(),
    "int64_param": st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
    "string_param": st.sampled_from(["", "a", "true"]) | NAMES,
    "double_param": st.floats(),
    "uint64_param": st.sampled_from([0, 1, 2**64 - 1]),
}
TENSORS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["obs", "action_mask"]) | NAMES,
        "shape": st.sampled_from([[1, 3], [1, 4], [2, 3], [0, 3]]) | st.lists(SIZES | VALUES_OF["int64"], max_size=20),
        "datatype": st.sampled_from(["FP32", "UINT8", "INT64", "FP16", "BYTES"]) | NAMES,
    },
    optional={
        "contents": st.fixed_dictionaries(
            {}, optional={CONTENTS_OF[kind]: st.lists(values, max_size=8) for kind, values in VALUES_OF.items()}
        )
    },
)
# A parameter has one value or none.
VALUES = st.one_of(st.just({}), *(st.fixed_dictionaries({kind: values}) for kind, values in PARAMETERS.items()))
REQUESTS = st.fixed_dictionaries(
    {"model_name": st.sampled_from(["toy", "masked", "memory"]) | NAMES},
    optional={
        "model_version": st.just("7") | NAMES,
        "id": NAMES,
        "inputs": st.just([TENSOR]) | st.lists(TENSORS, max_size=3),
        "raw_input_contents": st.just([ROW]) | st.lists(st.sampled_from([ROW, ROW * 2, b""]) | st.binary(), max_size=3),
        "outputs": st.lists(st.fixed_dictionaries({"name": st.just("action") | NAMES}), max_size=3),
        "parameters": st.dictionaries(
            st.sampled_from(["sequence_id", "sequence_start", "sequence_end"]) | NAMES, VALUES, max_size=4
        ),
    },
)
"""Nearly what a client sends, with parts that are wrong."""


def request(**fields: object) -> bytes:
    """An inference that is answered, with some of its fields changed."""
    good = {"model_name": "toy", "id": "one", "inputs": [TENSOR], "raw_input_contents": [ROW]}
    return message("ModelInferRequest")(**{**good, **fields}).SerializeToString()


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes((low | 0x80,)) + varint(rest) if rest else bytes((low,))


def sized(field: int, data: bytes) -> bytes:
    """A field whose value is bytes, a text, a message or packed numbers."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def packed(kind: str, values: Sequence[object]) -> bytes:
    """Repeated numbers without tag and size, as protobuf writes them."""
    whole = message("InferTensorContents")(**{CONTENTS_OF[kind]: values}).SerializeToString()
    size = len(varint(len(whole)))
    return next(whole[1 + n :] for n in range(size + 1) if not whole or varint(len(whole) - 1 - n) == whole[1 : 1 + n])


def hostile(size: int) -> Mapping[str, bytes]:
    """Requests of about so many bytes that say as many things as fit."""
    model = sized(1, b"toy")
    tensor = sized(1, b"obs") + sized(2, b"FP32")
    row = sized(3, b"\1\3")
    zeros, pairs = bytes(size), size // 2
    contents = {f"packed {kind}": sized(5, sized(number, zeros)) for number, kind in enumerate(CONTENTS_OF, 1)}
    inputs = {
        "empty inputs": b"\x2a\0" * pairs,
        "empty parts of an input": sized(5, b"\x2a\0" * pairs),
        "packed sizes": sized(5, tensor + sized(3, zeros)),
        "single sizes": sized(5, tensor + b"\x18\0" * pairs),
        "single numbers": sized(5, tensor + row + sized(5, b"\x18\0" * pairs)),
        **{name: sized(5, tensor + row + part) for name, part in contents.items()},
        "numbers as the shape says": sized(5, tensor + sized(3, varint(size // 3) + b"\3") + contents["packed int64"]),
    }
    return {
        "empty outputs": model + b"\x32\0" * pairs,
        "empty tensors": model + b"\x3a\0" * pairs,
        "empty parameters": model + b"\x22\0" * pairs,
        "unknown fields": model + b"\x78\0" * pairs,
        "one unknown field": model + sized(15, zeros),
        "a long id": model + sized(3, "\N{SNOWMAN}".encode() + b"a" * size),
        "a long tensor": model + sized(5, tensor + row) + sized(7, zeros),
        **{name: model + data for name, data in inputs.items()},
    }
