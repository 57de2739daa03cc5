"""Codecs: a body whose numbers are read straight into a row says what it says to the reader of JSON, bit for bit."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.protocols.gamecore.codecs import JsonCodec
from tests.serving.server.fuzz_frames import Front
from tests.serving.server.harness import policy_of

FRONT = Front()
NUMBERS = st.floats() | st.floats(width=32) | st.integers() | st.just(-0.0)
WRITTEN = NUMBERS.map(json.dumps) | st.sampled_from(
    ["-0", "0e0", "1E5", "1e-400", "1e400", "-1e39", "3.4028235677973366e38", "01", ".5", "1.", "0x1", "true", "[]"]
)


def heard(codec: JsonCodec, body: bytes) -> object:
    """What a codec makes of a body, as values that can be compared."""
    try:
        found = codec.decode(body)
    except Refusal as refusal:
        return refusal.text
    obs = found.fields["obs"]
    return list(found.fields), obs.dtype, obs.shape, obs.tobytes(), found[1:]


@settings(max_examples=500, deadline=None)
@given(st.lists(WRITTEN, min_size=2, max_size=4), st.sampled_from(["", ', "reward": 1', " "]))
@example(["1", "2", "3"], "")
@example(["16777217", "0.1", "9007199254740993"], "")
def test_both_ways_of_reading_give_the_same(numbers: list[str], more: str) -> None:
    quick, general = JsonCodec(FRONT.endpoint), JsonCodec(FRONT.endpoint)
    general._row = None
    body = f'{{"obs": [{", ".join(numbers)}]{more}}}'.encode()
    assert heard(quick, body) == heard(general, body)


def test_the_usual_body_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.serving.server.protocols.gamecore.codecs.read_json", lambda *_: pytest.fail("read as JSON")
    )
    found = JsonCodec(FRONT.endpoint).decode(b'{"obs": [0.1, -2, 3e-1]}')
    np.testing.assert_array_equal(found.fields["obs"], np.array([[0.1, -2, 0.3]], np.float32))


@pytest.mark.parametrize("kind", ["nested", "places", "masked"])
def test_observations_of_other_forms_are_read_as_json(kind: str) -> None:
    class Endpoint:
        policy, limits = policy_of(kind), Limits()

    assert JsonCodec(Endpoint())._row is None
