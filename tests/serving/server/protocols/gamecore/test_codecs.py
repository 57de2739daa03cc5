"""Codecs: a body whose numbers are read straight into a row says what it says to the reader of JSON, bit for bit.

A body may hold more than the policy takes.
"""

import asyncio
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.serving.observations import FieldReader
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.serving.server.protocols.gamecore.codecs import JsonCodec, RawCodec
from penstock.types import Discrete, Spaces
from tests.serving.server.fuzz_frames import Front
from tests.serving.server.harness import BOX, DIAL, policy_of

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


@pytest.fixture
def of_critic():
    """The endpoint of a policy whose critic alone has seen the field ``state``."""
    loop = asyncio.new_event_loop()
    yield Endpoint("critic", policy_of("critic"), Limits(), loop=loop)
    loop.close()


def test_a_body_may_hold_the_field_that_only_the_critic_has_seen(of_critic: Endpoint) -> None:
    text, raw = JsonCodec(of_critic), RawCodec(of_critic)
    bodies = {
        text: (b'{"obs": {"dial": [0.5, 1], "which": 2}}', b'{"obs": {"dial": [0.5, 1], "state": [], "which": 2}}'),
        # Fields stand in the order of their names.
        raw: tuple(np.array(row, "<f4").tobytes() for row in ([0.5, 1, 2], [0.5, 1, 9, 9, 9, 2])),
    }
    for codec, sent in bodies.items():
        for body in sent:
            fields = codec.decode(body).fields
            assert {name: values.tolist() for name, values in fields.items()} == {
                "obs.dial": [[0.5, 1.0]],
                "obs.which": [2],
            }
    with pytest.raises(Refusal, match="the body has 16 bytes, wanted 12 of float32"):
        raw.decode(bytes(16))


def test_an_array_is_a_tuple_though_only_the_critic_has_seen_its_first_place() -> None:
    spaces = Spaces((("obs.1", DIAL),), Discrete(4), unread=(("obs.0", BOX),))
    policy = SimpleNamespace(spaces=spaces)
    endpoint = SimpleNamespace(policy=policy, limits=Limits(), check=FieldReader(spaces).read)
    fields = JsonCodec(endpoint).decode(b'{"obs": [null, [0.5, 1]]}').fields
    assert {name: values.tolist() for name, values in fields.items()} == {"obs.1": [[0.5, 1.0]]}
