"""Messages of gRPC, read within bounds: what protobuf reads, and little memory and work for what is hostile."""

import tracemalloc
from http import HTTPStatus

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.protocols.open_inference.grpc import numbers as grpc_numbers
from penstock.serving.server.protocols.open_inference.grpc import reading as grpc_reading
from penstock.serving.server.protocols.open_inference.grpc.messages import FIELDS, message
from penstock.serving.server.protocols.open_inference.grpc.numbers import Numbers
from penstock.serving.server.protocols.open_inference.grpc.reading import MOST_FIELDS, MOST_TEXT, Reader
from tests.serving.server.fuzz_frames import Front
from tests.serving.server.fuzz_seeds import CALLS, seeds
from tests.serving.server.protocols.open_inference.grpc.requests import REQUESTS, hostile, sized

READER = Reader(FIELDS)
SIZE = 4 << 20
MOST = 2 << 20
"""Bytes that a refused request may take beside its own."""


def plain(found: object) -> object:
    """What `Reader` has read, as Python's numbers, bytes and lists."""
    match found:
        case dict():
            return {name: plain(value) for name, value in found.items()}
        case list():
            return [plain(value) for value in found]
        case memoryview():
            return bytes(found)
        case Numbers():
            arrays = (found.array(count) for count in range(100))
            array = next((array for array in arrays if array is not None), None)
            if array is None:
                raise Refusal(HTTPStatus.BAD_REQUEST, "the bytes hold no numbers")
            return array.tolist()
    return found


def by_protobuf(found: object) -> dict[str, object]:
    """The same of a message that protobuf has read."""
    fields = {}
    for field, value in found.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            fields[field.name] = {key: by_protobuf(one) for key, one in value.items()}
        elif field.message_type is not None:
            several = field.is_repeated
            fields[field.name] = [by_protobuf(one) for one in value] if several else by_protobuf(value)
        else:
            fields[field.name] = list(value) if field.is_repeated else value
    return fields


def set_only(found: object) -> object:
    """Without what is as if it had not been sent: zeros and empty texts, and messages that hold nothing else."""
    if isinstance(found, dict):
        kept = {name: set_only(value) for name, value in found.items()}
        return {name: value for name, value in kept.items() if value not in (0, "", b"", [], {})}
    return [set_only(value) for value in found] if isinstance(found, list) else found


@settings(deadline=None)
@given(fields=REQUESTS)
def test_requests_are_read_as_by_protobuf(fields: dict[str, object]) -> None:
    sent = message("ModelInferRequest")(**fields)
    # NaN is one here.
    np.testing.assert_equal(plain(READER.read("ModelInferRequest", sent.SerializeToString())), by_protobuf(sent))


@settings(deadline=None, max_examples=300)
@given(seed=st.sampled_from(seeds()["grpc"]), data=st.data())
def test_what_protobuf_refuses_is_refused(seed: bytes, data: st.DataObject) -> None:
    name, base = f"{CALLS[seed[0]]}Request", seed[1:]
    cut = data.draw(st.integers(0, len(base)))
    altered = base[:cut] + data.draw(st.binary(max_size=8)) + base[cut + data.draw(st.integers(0, 8)) :]
    try:
        found = plain(READER.read(name, altered))
    except Refusal:
        return
    np.testing.assert_equal(set_only(found), set_only(by_protobuf(message(name).FromString(altered))))


NO_MESSAGES = {
    "a tag that is cut off": b"\xff",
    "a text that is cut off": b"\x0a\x05a",
    "a text that is none": b"\x0a\x01\xff",
    "a size without end": b"\x0a" + b"\xff" * 11,
    "field 0": b"\0\0",
    "a number that is cut off": b"\x0d\0",
    "a group": b"\x0b\x0c",
}


@pytest.mark.parametrize("data", NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(Refusal, match="is no ModelReadyRequest of protobuf"):
        READER.read("ModelReadyRequest", data)


def test_numbers_may_come_in_parts() -> None:
    numbers = sized(5, sized(6, bytes(4))) + sized(5, b"\x35" + bytes(4))
    (found,) = READER.read("ModelInferRequest", sized(5, sized(1, b"obs") + numbers))["inputs"]
    assert found["contents"]["fp32_contents"].array(2).tolist() == [0.0, 0.0]


def test_of_values_that_exclude_each_other_the_last_one_is_last() -> None:
    found = READER.read("InferParameter", b"\x10\5\x08\1\x10\6")
    assert list(found.items()) == [("bool_param", True), ("int64_param", 6)]


def test_as_many_fields_and_as_long_texts_as_are_allowed() -> None:
    assert READER.read("ServerLiveRequest", b"\x78\0" * MOST_FIELDS) == {}
    with pytest.raises(Refusal, match="more than 4096 fields"):
        READER.read("ServerLiveRequest", b"\x78\0" * (MOST_FIELDS + 1))
    assert READER.read("ModelInferRequest", sized(3, b"a" * MOST_TEXT))["id"] == "a" * MOST_TEXT
    with pytest.raises(Refusal, match="id has 65537 bytes; the most is 65536"):
        READER.read("ModelInferRequest", sized(3, b"a" * (MOST_TEXT + 1)))


@pytest.fixture(scope="module")
def front() -> Front:
    return Front()


@pytest.mark.parametrize("name", hostile(0))
def test_hostile_requests_take_little_memory_and_work(front: Front, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted in varints that Python reads: each field has one or two, behind its tag its size or value."""
    data = hostile(SIZE)[name]
    assert SIZE <= len(data) < SIZE + 100
    read, varint = [], grpc_numbers.varint
    for module in (grpc_numbers, grpc_reading):
        monkeypatch.setattr(module, "varint", lambda *given: read.append(None) or varint(*given))
    tracemalloc.start()
    try:
        with pytest.raises(Refusal):
            front.call("ModelInfer", data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MOST
    assert len(read) <= 3 * MOST_FIELDS
