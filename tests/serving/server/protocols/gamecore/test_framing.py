"""Gamecore over TCP, version 2, against a client written by hand from the bytes of docs/gamecore-tcp.md."""

import contextlib
import json

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.gamecore.delta import encode
from tests.serving.server.harness import (
    FRAME,
    GREETING,
    MAGIC,
    Game,
    Running,
    SecondGame,
    frame,
    observations,
    policy_of,
    second_frame,
    serving,
)

BODY = b'{"obs": [0.1, 0.2, 0.3]}'


@pytest.fixture(scope="module")
def server():
    with serving(max_body=4096, max_sessions=4) as running:
        yield running


@pytest.fixture(scope="module")
def crowded():
    """A server whose sessions may be those of anybody."""
    with serving(max_body=4096) as running:
        yield running


def tick(obs) -> bytes:
    return json.dumps({"obs": np.asarray(obs).tolist()}).encode()


def test_start_ticks_stop_give_the_policys_actions_bit_for_bit(server: Running) -> None:
    obs = observations(5)
    with SecondGame(server.tcp) as game:
        assert (game.version, game.status, game.text) == (2, 200, "")
        assert game.request("chess-agent-1", "start") == (200, b"{}")
        for row, action in zip(obs, policy_of("plain")(obs), strict=True):
            status, found = game.request("chess-agent-1", "tick", tick(row))
            assert status == 200
            np.testing.assert_array_equal(np.array(json.loads(found)["action"], np.float32), action)
        assert game.request("chess-agent-1", "stop") == (200, b"{}")


def test_both_versions_share_a_port_and_their_sessions(server: Running) -> None:
    with SecondGame(server.tcp) as second, Game(server.tcp) as first:
        first.ask("shared", "start")
        status, body = second.request("shared", "tick", BODY)
        assert (status, body) == (200, first.ask("shared", "tick", BODY))
        assert second.request("shared", "stop") == (200, b"{}")


def test_a_newer_client_is_told_the_version_that_both_speak(server: Running) -> None:
    with SecondGame(server.tcp, version=7) as game:
        assert (game.version, game.status) == (2, 200)
        assert game.request("", "", BODY)[0] == 200


def test_ids_are_echoed_in_the_order_of_the_requests(server: Running) -> None:
    ids = [2**64 - 1, 0, 5, 5, 4]
    kinds = ["start", "tick", "tick", "tick", "stop"]
    with SecondGame(server.tcp) as game:
        game.socket.sendall(b"".join(second_frame(i, "o", kind, BODY) for i, kind in zip(ids, kinds, strict=True)))
        replies = [game.reply() for _ in ids]
    assert [reply[0] for reply in replies] == ids
    assert {reply[1] for reply in replies} == {200}


@pytest.mark.parametrize(
    ("session", "kind", "body", "status", "text"),
    [
        ("g", "start", b"", 409, "has started already"),
        ("h", "tick", BODY, 404, "there is no session 'h'"),
        ("h", "stop", b"", 404, "there is no session 'h'"),
        ("", "start", b"", 400, "the session is missing"),
        ("g", "tick", b"[1]", 400, 'no JSON object with "obs"'),
        ("g", "tick", tick([0, 0]), 400, "obs has shape"),
        ("", "", tick(np.zeros((65, 3))), 400, "takes up to 64"),
    ],
)
def test_a_refusal_is_a_status_and_the_connection_goes_on(server, session, kind, body, status, text) -> None:
    with SecondGame(server.tcp) as game:
        assert game.request("g", "start")[0] == 200
        found, said = game.request(session, kind, body)
        assert (found, text in said.decode()) == (status, True)
        assert game.request("g", "tick", BODY)[0] == 200
        assert game.request("g", "stop")[0] == 200


def test_a_full_server_says_when_to_try_again() -> None:
    with serving(max_sessions=1) as server, SecondGame(server.tcp) as game:
        game.request("a", "start")
        game.socket.sendall(second_frame(9, "b", "start"))
        number, status, said, after = game.reply()
    assert (number, status, after) == (9, 429, 1)
    assert b"all 1 sessions are taken" in said


def test_the_greeting_holds_the_token() -> None:
    with serving(token="a-secret") as server:
        for wrong in ("", "a-secre", "guess"):
            with SecondGame(server.tcp, wrong) as game:
                assert (game.status, game.text) == (401, "the token is missing or wrong")
                assert game.is_closed()
        with SecondGame(server.tcp, "a-secret") as game:
            assert game.status == 200
            assert game.request("i", "start")[0] == 200


@pytest.mark.parametrize(
    ("head", "status", "text"),
    [
        (FRAME.pack(7, 0, 4097, 0, 0, 0, 0), 413, "4097 bytes; the most is 4096"),
        (FRAME.pack(7, 0, 2**64 - 1, 0, 0, 0, 0), 413, "the most is 4096"),
        (FRAME.pack(7, 0, 0, 257, 0, 0, 0), 400, "session has 257 bytes"),
        (FRAME.pack(7, 0, 0, 2**32 - 1, 0, 0, 0), 400, "the most is 256"),
        (FRAME.pack(7, 0, 0, 0, 4, 0, 0), 400, "step kind 4"),
        (FRAME.pack(7, 0, 0, 0, 0, 9, 0), 400, "encoding 9"),
        (FRAME.pack(7, 0, 0, 0, 0, 0, 1), 400, "where 0 belongs"),
    ],
)
def test_a_bad_frame_is_one_status_and_the_end(server, head: bytes, status: int, text: str) -> None:
    before = psutil.Process().memory_info().rss
    with SecondGame(server.tcp) as game:
        game.socket.sendall(second_frame(1, "", "", BODY) + head)
        assert game.reply()[:2] == (1, 200)
        number, found, said, _ = game.reply()
        assert (number, found, text in said.decode()) == (7, status, True)
        assert game.is_closed()
    assert psutil.Process().memory_info().rss - before < 32 << 20


@pytest.mark.parametrize(
    ("greeting", "text"),
    [
        (GREETING.pack(MAGIC, 1, 0, 0), "a greeting of version 1"),
        (GREETING.pack(MAGIC, 2, 4097, 0), "key and token have 4097 and 0 bytes"),
        (GREETING.pack(MAGIC, 2, 0, 2**32 - 1), "the most is 4096"),
    ],
)
def test_a_bad_greeting_is_one_status_and_the_end(server: Running, greeting: bytes, text: str) -> None:
    with Game(server.tcp) as game:
        game.socket.sendall(greeting)
        magic, _, status, size = GREETING.unpack(game.exactly(GREETING.size))
        assert (magic, status, text in game.exactly(size).decode()) == (MAGIC, 400, True)
        assert game.is_closed()


def test_all_may_come_byte_by_byte(server: Running) -> None:
    with Game(server.tcp) as game:
        for byte in GREETING.pack(MAGIC, 2, 0, 0) + second_frame(3, "", "", BODY):
            game.socket.sendall(bytes([byte]))
        assert game.exactly(GREETING.size) == GREETING.pack(MAGIC, 2, 200, 0)
        assert game.exactly(8) == (3).to_bytes(8, "big")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fuzzed_frames(crowded: Running, data: st.DataObject) -> None:
    whole = GREETING.pack(MAGIC, 2, 0, 1) + b"t" + second_frame(1, "f", "", BODY) + second_frame(2, "", "", BODY)
    cut = data.draw(st.integers(0, len(whole)))
    put = data.draw(st.binary(max_size=8))
    sent = whole[:cut] + put + whole[cut + data.draw(st.sampled_from([0, len(put)])) :]
    with Game(crowded.tcp) as game:
        with contextlib.suppress(OSError):
            game.socket.sendall(sent)
            game.socket.shutdown(1)
        with contextlib.suppress(ConnectionResetError):
            while game.socket.recv(65536):
                pass
    with Game(crowded.tcp) as game:
        assert b"action" in game.ask("", "", BODY)


def test_version_1_is_as_it_was(server: Running) -> None:
    with Game(server.tcp) as game:
        game.socket.sendall(frame("a", "jump"))
        assert game.is_closed()


# Deltas.

KEY, DELTA = 1, 2


def bodies(count: int) -> list[bytes]:
    """Bodies of which each is nearly the one before: a tick of float32 numbers as JSON, with much space."""
    return [b'{"obs": [0.1, 0.2, 0.%d]%s}' % (number, b" " * 400) for number in range(count)]


def test_deltas_give_the_actions_of_whole_bodies(server: Running) -> None:
    with SecondGame(server.tcp) as game:
        game.request("d", "start")
        before, found, wanted = b"", [], []
        for number, body in enumerate(bodies(6)):
            if number == 0:
                found.append(game.request("d", "tick", body, encoding=KEY))
            else:
                delta = encode(before, body)
                assert delta is not None
                assert len(delta) < 20
                found.append(game.request("d", "tick", delta, encoding=DELTA, base=game.number))
            before = body
        game.request("d", "stop")
        wanted = [game.request("", "", body) for body in bodies(6)]
    assert found == wanted
    assert {status for status, _ in found} == {200}


def test_a_missing_base_is_asked_for(server: Running) -> None:
    first, second, third = bodies(3)
    with SecondGame(server.tcp) as game:
        game.request("d", "start")
        assert game.request("d", "tick", encode(first, second), encoding=DELTA, base=1)[0] == 412
        assert game.request("d", "tick", first, encoding=KEY)[0] == 200
        key = game.number
        # Another session's base, another request's, and the base of a session that was stopped.
        assert game.request("e", "tick", encode(first, second), encoding=DELTA, base=key)[0] == 412
        assert game.request("d", "tick", encode(first, second), encoding=DELTA, base=key + 7)[0] == 412
        status, said = game.request("d", "tick", encode(first, second), encoding=DELTA, base=key)
        assert status == 200
        # A plain tick is no base, and leaves the base as it is.
        taken = game.number
        assert game.request("d", "tick", BODY)[0] == 200
        assert game.request("d", "tick", encode(second, third), encoding=DELTA, base=taken)[0] == 200
        taken = game.number
        assert game.request("d", "stop")[0] == 200
        assert game.request("d", "start")[0] == 200
        status, said = game.request("d", "tick", encode(third, first), encoding=DELTA, base=taken)
        assert (status, b"send a key frame" in said) == (412, True)
        assert game.request("d", "stop")[0] == 200


def test_a_tick_that_is_refused_is_no_base(server: Running) -> None:
    good, wrong = bodies(1)[0], bodies(1)[0].replace(b"0.2, ", b"")
    with SecondGame(server.tcp) as game:
        game.request("d", "start")
        game.request("d", "tick", good, encoding=KEY)
        taken = game.number
        assert game.request("d", "tick", encode(good, wrong), encoding=DELTA, base=taken)[0] == 400
        assert game.request("d", "tick", encode(wrong, good), encoding=DELTA, base=game.number)[0] == 412
        assert game.request("d", "tick", encode(good, bodies(2)[1]), encoding=DELTA, base=taken)[0] == 200
        assert game.request("d", "stop")[0] == 200


def test_a_malformed_delta_is_a_status_and_changes_nothing(server: Running) -> None:
    first, second = bodies(2)
    with SecondGame(server.tcp) as game:
        game.request("d", "start")
        game.request("d", "tick", first, encoding=KEY)
        key = game.number
        for bad in (b"", b"\xff" * 40, b"\xff" * 9 + b"\x01", (4097).to_bytes(2, "little") + b"\x00"):
            assert game.request("d", "tick", bad, encoding=DELTA, base=key)[0] == 400
        assert game.request("d", "tick", encode(first, second), encoding=DELTA, base=key)[0] == 200
        assert game.request("d", "stop")[0] == 200


def test_only_ticks_have_deltas(server: Running) -> None:
    for kind in ("start", "stop", ""):
        with SecondGame(server.tcp) as game:
            assert game.request("d", kind, BODY, encoding=KEY)[0] == 400
            assert game.is_closed()


def test_bases_of_one_connection_are_bounded_and_the_oldest_go() -> None:
    """A body is 3 of the 4 KiB that a connection may keep, so two sessions push each other out."""
    large = b'{"obs": [0.1, 0.2, 0.3]%s}' % (b" " * 3000)
    with serving(max_body=4096) as server, SecondGame(server.tcp) as game:
        for name in ("a", "b"):
            game.request(name, "start")
            assert game.request(name, "tick", large, encoding=KEY)[0] == 200
        key = game.number
        delta = encode(large, large)
        assert game.request("a", "tick", delta, encoding=DELTA, base=key - 2)[0] == 412
        assert game.request("b", "tick", delta, encoding=DELTA, base=key)[0] == 200


def test_many_deltas_of_a_large_body_wait_for_each_other() -> None:
    """64 requests of 10 bytes each stand for 64 MiB: no more than two are unpacked at a time, and all are answered."""
    large = b'{"obs": [0.1, 0.2, 0.3]%s}' % (b" " * (1 << 20))
    with serving("slow:0.01:plain", max_body=(1 << 20) + 100) as server, SecondGame(server.tcp) as game:
        game.request("a", "start")
        game.request("a", "tick", large, encoding=KEY)
        delta = encode(large, large)
        numbers = list(range(game.number + 1, game.number + 65))
        frames = [second_frame(number, "a", "tick", delta, base=number - 1, encoding=DELTA) for number in numbers]
        game.socket.sendall(b"".join(frames))
        connection = next(iter(server.server._service.connections))
        most = 0
        for number in numbers:
            found, status, _, _ = game.reply()
            assert (found, status) == (number, 200)
            most = max(most, connection.unpacked)
        assert most <= 2 * len(large)
        assert connection.unpacked == 0
