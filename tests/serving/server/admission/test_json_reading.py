"""JSON of anybody: a batch is read, however it is nested, and what is hostile takes little memory."""

import tracemalloc

import numpy as np
import orjson
import pytest

from penstock.serving.server.admission.json_reading import most_values, read_json
from penstock.serving.server.admission.refusal import Refusal
from penstock.types import Box, Discrete, Spaces
from tests.serving.server.harness import SPACES

SIZE = 4 << 20
MOST = 2 << 20
"""Bytes that a refused body may take beside its own."""
HOSTILE = {
    "arrays": b"[" + b"[]," * (SIZE // 3) + b"0]",
    "objects": b"[" + b'{"":0},' * (SIZE // 7) + b"0]",
    "numbers": b"[" + b"1.5," * (SIZE // 4) + b"0]",
    "texts": b"[" + b'"a",' * (SIZE // 4) + b"0]",
    "keys": b"{" + b",".join(b'"%x":0' % number for number in range(SIZE // 10)) + b"}",
    "depth": b"[" * (SIZE // 2) + b"]" * (SIZE // 2),
}


@pytest.mark.parametrize(
    "spaces", [*SPACES.values(), Spaces((("obs", Box((4, 1, 1), "float32", (-1.0,), (1.0,))),), Discrete(2))]
)
def test_a_whole_batch_may_be_nested_as_it_is(spaces: Spaces) -> None:
    rows = 64
    obs = {spec.name: np.ones((rows, *spec.shape)).tolist() for spec in spaces.obs_specs()}
    body = orjson.dumps({"obs": obs, "reward": 1.0})
    assert read_json(body, most_values(spaces, rows)) == orjson.loads(body)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_takes_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match="values, which no batch needs"):
            read_json(HOSTILE[name], most_values(SPACES["plain"], 64))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MOST


def test_the_bound_counts_observations_of_a_batch() -> None:
    few, many = most_values(SPACES["plain"], 1), most_values(SPACES["plain"], 65)
    assert many - few == 64 * 6
    assert read_json(b"[" + b"1," * (few - 1) + b"1]", few)
    with pytest.raises(Refusal, match=f"more than {few} values"):
        read_json(b"[" + b"1," * few + b"1]", few)


def test_what_is_no_json_is_said() -> None:
    with pytest.raises(Refusal, match="the body is no JSON"):
        read_json(b"\xff", 10)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_numbers_that_json_has_not_are_named(number: bytes) -> None:
    with pytest.raises(Refusal, match="JSON has no NaN and no infinity"):
        read_json(b'{"obs": [' + number + b"]}", 10)
