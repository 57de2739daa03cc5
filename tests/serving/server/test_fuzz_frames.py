"""The targets of ``make fuzz-frames``, without atheris: they reach what they shall, and they find what is broken."""

import random

import pytest

from penstock.serving.server.protocols.gamecore.framing import SecondFraming
from penstock.serving.server.protocols.open_inference.models import Model
from tests.envs import fuzz_dm_env_rpc, fuzz_mlagents
from tests.serving.server import fuzz_frames
from tests.serving.server.fuzz_frames import Front
from tests.serving.server.fuzz_seeds import CALLS, request, seeds


@pytest.fixture(scope="module")
def targets():
    with fuzz_frames.strict():
        yield fuzz_frames.targets()


@pytest.mark.parametrize("name", ["tcp", "http", "grpc", "delta", "mlagents", "dm_env_rpc"])
def test_good_and_altered_inputs_find_nothing(targets, name: str) -> None:
    numbers = random.Random(0)
    for seed in seeds()[name]:
        targets[name](seed)
        for _ in range(30):
            altered = bytearray(seed)
            for _ in range(numbers.randint(1, 4)):
                altered[numbers.randrange(len(altered))] = numbers.randrange(256)
            targets[name](bytes(altered))


def test_the_seeds_are_answered() -> None:
    """Otherwise the fuzzing would begin at refusals, and hardly come further."""
    front = Front()
    from penstock.serving.server.connections.http import HttpConnection
    from penstock.serving.server.protocols.gamecore.tcp import GamecoreConnection

    both = [front.exchange(GamecoreConnection(front.service), data) for data in seeds()["tcp"][:2]]
    # Version 1: an answer to each of start, tick, stop and a request without a session. Version 2: two ticks.
    assert [reply.count(b'{"action"') for reply in both] == [2, 2]
    for data in seeds()["http"]:
        assert b"HTTP/1.1 200 OK" in front.exchange(HttpConnection(front.service, front.route), data)
    assert {CALLS[data[0]] for data in seeds()["grpc"]} == set(CALLS) == set(front.calls.by_name)
    for data in seeds()["grpc"]:
        front.call(CALLS[data[0]], data[1:])
    for data in seeds()["mlagents"]:
        assert fuzz_mlagents.play(data) == fuzz_mlagents.STEPS
    for data in seeds()["dm_env_rpc"]:
        assert fuzz_dm_env_rpc.play(data) == fuzz_dm_env_rpc.STEPS


def test_an_error_that_the_server_would_log_is_found(targets, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise IndexError("a number that nobody checked")

    monkeypatch.setattr(SecondFraming, "read", broken)
    monkeypatch.setattr(Model, "read", broken)
    with pytest.raises((AssertionError, IndexError)):
        targets["tcp"](seeds()["tcp"][1])
    body = b'{"inputs": [{"name": "obs", "shape": [], "data": []}]}'
    with pytest.raises(AssertionError):
        targets["http"](request("POST", "/v2/models/toy/infer", body))
    with pytest.raises(IndexError):
        targets["grpc"](seeds()["grpc"][0])
