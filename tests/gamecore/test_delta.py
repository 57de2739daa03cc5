"""Delta encoding: lossless for any bytes, never larger than what it stands for, and no harm from hostile bytes."""

import contextlib
import json
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.gamecore.delta import DeltaError, decode, encode

LIMIT = 1 << 20
DTYPES = ["bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "complex128"]


def sent(base: bytes, body: bytes) -> bytes | None:
    """The delta, once it was seen that it gives the body back."""
    delta = encode(base, body)
    if delta is not None:
        assert len(delta) < len(body)
        assert decode(base, delta, len(body)) == body
    return delta


@st.composite
def pairs(draw) -> tuple[bytes, bytes]:
    """Two bodies of which the second one is the first with some changes."""
    base = draw(st.binary(max_size=300))
    body = bytearray(base)
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 30))] = draw(st.binary(max_size=30))
    return base, bytes(body)


@settings(max_examples=500, deadline=None)
@given(pairs())
@example((b"", b""))
@example((b"", b"x"))
@example((b"x" * 100, b""))
@example((b"x" * 100, b"x" * 101))
@example((b"x" * 101, b"x" * 100))
def test_whatever_changes_comes_back(pair) -> None:
    sent(*pair)


@settings(deadline=None)
@given(st.sampled_from(DTYPES), st.integers(0, 2**32), st.data())
def test_arrays_of_every_dtype_come_back_bit_for_bit(dtype: str, seed: int, data: st.DataObject) -> None:
    numbers = np.random.default_rng(seed)
    size = np.dtype(dtype).itemsize
    before = numbers.integers(0, 256, 64 * size, np.uint8)
    after = before.reshape(64, size).copy()
    for place in data.draw(st.lists(st.integers(0, 63), max_size=8)):
        after[place] = numbers.integers(0, 256, size)
    delta = sent(before.tobytes(), after.tobytes())
    if delta is not None:
        found = np.frombuffer(decode(before.tobytes(), delta, LIMIT), dtype)
        assert found.tobytes() == after.tobytes()


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0xFFC12345, 0x80000000, 0x7F800000, 0x00000001])
def test_nan_payloads_signed_zeros_and_the_smallest_number_keep_their_bits(bits: int) -> None:
    base = np.zeros(1000, "<f4")
    body = base.copy().tobytes()[:400] + struct.pack("<I", bits) + base.tobytes()[404:]
    delta = sent(base.tobytes(), body)
    assert delta is not None
    assert len(delta) < 20
    assert decode(base.tobytes(), delta, LIMIT)[400:404] == struct.pack("<I", bits)


def test_one_percent_of_ten_thousand_floats_takes_a_twentieth_of_the_bytes() -> None:
    numbers = np.random.default_rng(0)
    obs = numbers.normal(size=10_000).astype(np.float32)
    for _ in range(20):
        before = obs.tobytes()
        obs[numbers.choice(10_000, 100, replace=False)] = numbers.normal(size=100)
        delta = sent(before, obs.tobytes())
        assert delta is not None
        assert 20 * len(delta) <= obs.nbytes


def test_numbers_of_json_may_become_longer_and_shorter() -> None:
    numbers = np.random.default_rng(1)
    obs = numbers.normal(size=2000)
    before = json.dumps({"obs": obs.tolist(), "reward": 1.0}).encode()
    obs[numbers.choice(2000, 20, replace=False)] = [0.0, -1.5, 1e-7, 12345.678] * 5
    body = json.dumps({"obs": obs.tolist(), "reward": -0.25}).encode()
    assert len(before) != len(body)
    delta = sent(before, body)
    assert delta is not None
    assert 20 * len(delta) <= len(body)


def test_what_changed_altogether_has_no_delta() -> None:
    numbers = np.random.default_rng(2)
    assert encode(numbers.bytes(5000), numbers.bytes(5000)) is None
    assert encode(b"", numbers.bytes(5000)) is None
    assert encode(b"anything", b"") is None


def test_a_result_beyond_the_limit_is_refused() -> None:
    base, body = b"x" * 5000, b"x" * 4999 + b"y"
    delta = sent(base, body)
    assert delta is not None
    with pytest.raises(DeltaError, match="more than 4999 bytes"):
        decode(base, delta, 4999)
    # A size that no memory could hold, and nothing behind it.
    with pytest.raises(DeltaError):
        decode(base, b"\xff" * 9 + b"\x01", 2**63)


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 500))
def test_bytes_of_anybody_are_a_body_or_a_clean_error(base: bytes, delta: bytes, limit: int) -> None:
    with contextlib.suppress(DeltaError):
        assert len(decode(base, delta, limit)) <= limit


@settings(max_examples=500, deadline=None)
@given(pairs(), st.data())
def test_an_altered_delta_is_a_body_or_a_clean_error(pair, data: st.DataObject) -> None:
    base, body = pair
    delta = encode(base, body)
    if delta is None:
        return
    cut = data.draw(st.integers(0, len(delta)))
    altered = delta[:cut] + data.draw(st.binary(max_size=4)) + delta[cut + data.draw(st.integers(0, 4)) :]
    with contextlib.suppress(DeltaError):
        assert len(decode(base, altered, 1000)) <= 1000
