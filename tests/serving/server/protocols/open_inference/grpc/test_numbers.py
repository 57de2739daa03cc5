"""Repeated numbers on the wire of protobuf: the same as protobuf reads, and only as many as are wanted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serving.server.protocols.open_inference.grpc import numbers as grpc_numbers
from penstock.serving.server.protocols.open_inference.grpc.numbers import Numbers
from tests.serving.server.protocols.open_inference.grpc.requests import VALUES_OF, packed

KINDS = {"bool": np.bool_, "int32": np.int32, "int64": np.int64, "uint32": np.uint32, "uint64": np.uint64}
FLOATS = {"float": np.float32, "double": np.float64}


def numbers(kind: str, *parts: bytes) -> Numbers:
    found = Numbers(kind)
    for part in parts:
        found.add(memoryview(part))
    return found


@pytest.mark.parametrize("kind", [*KINDS, *FLOATS])
@settings(deadline=None)
@given(data=st.data())
def test_the_numbers_that_protobuf_writes(kind: str, data: st.DataObject) -> None:
    lists = data.draw(st.lists(st.lists(VALUES_OF[kind], max_size=8), max_size=3))
    sent = [value for values in lists for value in values]
    found = numbers(kind, *(packed(kind, values) for values in lists))
    if kind in KINDS:
        assert found.few(len(sent)) == sent
        assert not sent or found.few(len(sent) - 1) is None
    array = found.array(len(sent))
    assert array.dtype == {**KINDS, **FLOATS}[kind]
    np.testing.assert_array_equal(array, np.array(sent, array.dtype))
    assert found.array(len(sent) + 1) is None
    assert not sent or found.array(len(sent) - 1) is None


def test_numbers_that_a_chunk_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_numbers, "_CHUNK", 10)
    sent = [0, 2**63, 1, 2**14, 300, 2**64 - 1, 127, 128]
    assert numbers("uint64", packed("uint64", sent)).array(len(sent)).tolist() == sent


@pytest.mark.parametrize("data", [b"\x80", b"\x01\x80", b"\x80" * 10 + b"\x01", b"\x80" * 100_000])
def test_bytes_that_are_no_numbers(data: bytes) -> None:
    assert numbers("int64", data).array(1) is None
    assert numbers("int64", data).few(100) is None


def test_a_number_of_more_bits_is_cut_as_by_protobuf() -> None:
    assert numbers("int32", packed("int64", [2**32 + 5, -(2**40) - 1])).array(2).tolist() == [5, -1]
    assert numbers("int32", packed("int64", [2**32 + 5, -(2**40) - 1])).few(2) == [5, -1]
    assert numbers("bool", packed("int64", [2**40])).array(1).tolist() == [True]
    assert numbers("bool", packed("int64", [2**40])).few(1) == [True]


def test_no_memory_is_taken_for_numbers_that_were_not_sent() -> None:
    assert numbers("int64", b"\x01").array(2**62) is None
