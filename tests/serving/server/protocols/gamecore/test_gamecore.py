"""Gamecore over TCP and HTTP, against clients written by hand from the protocol's description."""

import http.client
import json
import threading

import numpy as np
import pytest

from tests.serving.server.harness import Game, frame, make_idle, observations, policy_of, serving, until


def tick(obs) -> bytes:
    return json.dumps({"obs": np.asarray(obs).tolist()}).encode()


def expected(obs):
    """Actions of the policy asked by itself."""
    return policy_of("plain")(obs)


def test_tcp_start_ticks_stop_give_the_policys_actions_bit_for_bit() -> None:
    obs = observations(5)
    with serving() as server, Game(server.tcp) as game:
        assert game.ask("chess-agent-1", "start", time=11) == b"{}"
        for row, action in zip(obs, expected(obs), strict=True):
            found = json.loads(game.ask("chess-agent-1", "tick", tick(row)))
            np.testing.assert_array_equal(np.array(found["action"], np.float32), action)
        assert game.ask("chess-agent-1", "stop") == b"{}"


def test_tcp_echoes_session_and_time_and_keeps_the_order_of_pipelined_requests() -> None:
    obs = observations(200)
    with serving() as server, Game(server.tcp) as game:
        frames = [frame("a", "start", time=-1)]
        frames += [frame("a", "tick", tick(row), time=number) for number, row in enumerate(obs)]
        frames += [frame("a", "end", time=2**62)]
        game.socket.sendall(b"".join(frames))
        replies = [game.receive() for _ in frames]
    assert {session for session, _, _ in replies} == {"a"}
    assert [time for _, _, time in replies] == [-1, *range(200), 2**62]
    found = [json.loads(body)["action"] for _, body, _ in replies[1:-1]]
    np.testing.assert_array_equal(np.array(found, np.float32), expected(obs))


def test_tcp_frames_may_come_byte_by_byte() -> None:
    row = observations(1)[0]
    with serving() as server, Game(server.tcp) as game:
        for byte in frame("a", "start") + frame("a", "tick", tick(row)):
            game.socket.sendall(bytes([byte]))
        assert game.receive()[1] == b"{}"
        np.testing.assert_array_equal(np.float32(json.loads(game.receive()[1])["action"]), expected(row))


def test_a_call_without_a_step_kind_needs_no_session() -> None:
    row = observations(1)[0]
    with serving() as server, Game(server.tcp) as game:
        np.testing.assert_array_equal(np.float32(json.loads(game.ask("", "", tick(row)))["action"]), expected(row))


def test_the_raw_codec_is_little_endian_float32() -> None:
    row = observations(1)[0]
    with serving(codec="raw") as server, Game(server.tcp) as game:
        assert game.ask("a", "start") == b""
        action = np.frombuffer(game.ask("a", "tick", row.astype("<f4").tobytes()), "<f4")
        np.testing.assert_array_equal(action, expected(row))


@pytest.mark.parametrize(
    "bad",
    [
        frame("nobody", "tick", tick([0, 0, 0])),
        frame("", "start"),
        frame("a", "jump"),
        frame("a", "tick", b"no json"),
        b"\xff" * 48,
        (2**40).to_bytes(8, "big") + bytes(40),
    ],
    ids=["unknown session", "no session", "unknown step", "no JSON", "negative size", "huge size"],
)
def test_tcp_closes_the_connection_on_what_it_cannot_answer_after_the_replies_before(bad: bytes, caplog) -> None:
    with serving() as server, Game(server.tcp) as game:
        game.socket.sendall(frame("other", "start") + bad + frame("b", "start"))
        assert game.receive()[:2] == ("other", b"{}")
        assert game.is_closed()
        assert len(server.endpoint.sessions) == 1
    assert "closed: " in caplog.text


def test_a_game_that_crashed_starts_its_session_again_over_a_new_connection() -> None:
    obs = observations(2)
    with serving(max_sessions=1) as server:
        with Game(server.tcp) as crashed:
            crashed.ask("g", "start")
            crashed.ask("g", "tick", tick(obs[0]))
        until(lambda: not server.service.connections)
        with Game(server.tcp) as game, Game(server.tcp) as other:
            assert game.ask("g", "start") == b"{}"
            found = json.loads(game.ask("g", "tick", tick(obs[1])))["action"]
            np.testing.assert_array_equal(np.float32(found), expected(obs[1]))
            # It lives now, and so nobody else may start it.
            other.send("g", "start")
            assert other.is_closed()


def test_a_session_that_went_on_over_another_connection_is_not_started_again() -> None:
    obs = observations(2)
    with serving() as server, Game(server.tcp) as game:
        with Game(server.tcp) as before:
            before.ask("g", "start")
        until(lambda: len(server.service.connections) == 1)
        game.ask("g", "tick", tick(obs[0]))
        with Game(server.tcp) as other:
            other.send("g", "start")
            assert other.is_closed()
        game.ask("g", "tick", tick(obs[1]))


def test_a_connection_forgets_sessions_that_were_idle_for_too_long() -> None:
    with serving(idle_seconds=0.05) as server, Game(server.tcp) as game:
        for number in range(5):
            game.ask(f"g{number}", "start")
        (connection,) = server.service.connections
        assert not connection.may_give_way()
        until(lambda: not server.service.asked_over)
        assert connection.may_give_way()


class Web:
    """A client of Gamecore over HTTP."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120.0)

    def __enter__(self) -> "Web":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def step(self, body: bytes = b"", **headers: str | bytes) -> tuple[int, object]:
        self.connection.request("POST", "/step", body, headers)
        reply = self.connection.getresponse()
        return reply.status, json.loads(reply.read())


def test_a_session_that_went_on_over_http_does_not_part_with_its_connection_over_tcp() -> None:
    row = observations(1)[0]
    with serving() as server, Web(server.http) as web:
        with Game(server.tcp) as before:
            before.ask("g", "start")
            assert web.step(tick(row), session="g", step_kind="tick")[0] == 200
        until(lambda: len(server.service.connections) == 1)
        assert web.step(session="g", step_kind="start")[0] == 409
        assert not server.service.asked_over


@pytest.mark.parametrize("kind", ["step_kind", "step-kind"])
@pytest.mark.parametrize("name", ["session", "game_id"])
def test_http_start_ticks_stop(kind: str, name: str) -> None:
    row = observations(1)[0]
    with serving() as server, Web(server.http) as web:
        assert web.step(**{name: "g", kind: "start"}) == (200, {})
        status, found = web.step(tick(row), **{name: "g", kind: "tick"})
        assert status == 200
        np.testing.assert_array_equal(np.float32(found["action"]), expected(row))
        assert web.step(**{name: "g", kind: "stop"}) == (200, {})
        status, found = web.step(tick([row, row]))
        np.testing.assert_array_equal(np.array(found["action"], np.float32), expected(np.stack([row, row])))


def test_a_session_has_one_name_over_both_transports() -> None:
    name, row = "játék 1", observations(1)[0]
    with serving() as server, Web(server.http) as web, Game(server.tcp) as game:
        assert web.step(session=name.encode(), step_kind="start") == (200, {})
        np.testing.assert_array_equal(
            np.float32(json.loads(game.ask(name, "tick", tick(row)))["action"]), expected(row)
        )
        assert web.step(session=name.encode(), step_kind="stop") == (200, {})


@pytest.mark.parametrize(
    ("headers", "body", "status", "text"),
    [
        ({"session": "g", "step_kind": "start"}, b"", 409, "has started already"),
        ({"session": "h", "step_kind": "tick"}, tick([0, 0, 0]), 404, "there is no session 'h'"),
        ({"session": "h", "step_kind": "stop"}, b"", 404, "there is no session 'h'"),
        ({"session": "h", "step_kind": "start"}, b"", 429, "all 1 sessions are taken"),
        ({"session": "g", "step_kind": "leap"}, b"", 400, "step_kind is 'leap'"),
        ({"step_kind": "start"}, b"", 400, "the header session is missing"),
        ({"session": "g", "step_kind": "tick"}, b"[1]", 400, 'no JSON object with "obs"'),
        ({"session": "g", "step_kind": "tick"}, b"\xff", 400, "no JSON"),
        ({"session": "g", "step_kind": "tick"}, tick([0, 0]), 400, "obs has shape"),
        ({"session": "g", "step_kind": "tick"}, b'{"obs": ["1", "2", "3"]}', 400, "no array of numbers"),
        ({"session": "g", "step_kind": "tick"}, b'{"obs": [1e60, 0, 0]}', 400, "NaN or infinity"),
        ({"session": "g", "step_kind": "tick"}, tick([[0, 0, 0]] * 2), 400, "one row at a time"),
        ({}, tick(np.zeros((65, 3))), 400, "takes up to 64"),
    ],
)
def test_http_says_what_is_wrong_and_goes_on(headers, body, status, text) -> None:
    with serving(max_sessions=1) as server, Web(server.http) as web:
        assert web.step(session="g", step_kind="start") == (200, {})
        found = web.step(body, **headers)
        assert found[0] == status
        assert text in found[1]["detail"]
        assert web.step(tick([0, 0, 0]), session="g", step_kind="tick")[0] == 200


def test_dict_and_tuple_observations_and_masks_come_as_json() -> None:
    with serving("nested") as server:
        status, found = Web(server.http).step(b'{"obs": {"dial": [0.5, -0.5], "which": 2}}')
        assert (status, found["action"]) == (200, policy_of("nested")({"dial": [0.5, -0.5], "which": 2}))
    with serving("places") as server:
        status, found = Web(server.http).step(b'{"obs": [[0.5, -0.5, 0.1], {"turn": 1}]}')
        assert (status, found["action"]) == (200, policy_of("places")(([0.5, -0.5, 0.1], {"turn": 1})))
    with serving("masked") as server:
        for allowed in range(4):
            mask = [int(choice == allowed) for choice in range(4)]
            body = json.dumps({"obs": [0.1, 0.2, 0.3], "action_mask": mask}).encode()
            assert Web(server.http).step(body) == (200, {"action": allowed})
        status, found = Web(server.http).step(b'{"obs": [0.1, 0.2, 0.3]}')
        assert status == 400
        assert "action_mask" in found["detail"]


def test_a_session_never_sees_anothers_memory() -> None:
    """Each of many sessions, served in batches, gets what a policy that knows only this session answers."""
    count, steps = 24, 12
    obs = np.stack([observations(steps, seed) for seed in range(count)])
    wanted = []
    for rows in obs:
        alone = policy_of("memory").session(1)
        wanted.append([alone.act(row[None], first=number == 0)[0] for number, row in enumerate(rows)])
    found = np.zeros((count, steps, 2), np.float32)

    def play(port: int, number: int) -> None:
        with Game(port) as game:
            game.ask(f"s{number}", "start")
            for step in range(steps):
                found[number, step] = json.loads(game.ask(f"s{number}", "tick", tick(obs[number, step])))["action"]
            game.ask(f"s{number}", "stop")

    with serving("memory") as server:
        for _ in range(2):  # the second time each session gets the row of an earlier one
            threads = [threading.Thread(target=play, args=(server.tcp, number)) for number in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            np.testing.assert_array_equal(found, np.array(wanted))
        assert len(server.endpoint.sessions) == 0
        status, refused = Web(server.http).step(tick([0, 0, 0]))
        assert status == 400
        assert "in sessions only" in refused["detail"]


def test_an_idle_session_ends_with_its_memory() -> None:
    row = observations(1)[0]
    with serving("memory", max_sessions=1) as server, Game(server.tcp) as game, Web(server.http) as web:
        game.ask("a", "start")
        first = game.ask("a", "tick", tick(row))
        assert game.ask("a", "tick", tick(row)) != first
        make_idle(server)
        while web.step(session="b", step_kind="start")[0] != 200:
            threading.Event().wait(0.05)
        _, found = web.step(tick(row), session="b", step_kind="tick")
        assert found == json.loads(first)
        status, refused = web.step(session="a", step_kind="stop")
        assert status == 404
        assert "it was stopped, was idle for too long, or never started" in str(refused)


def test_a_wrong_token_is_refused() -> None:
    with serving(token="a-secret") as server, Web(server.http) as web:
        assert web.step(session="g", step_kind="start", token="a-secre")[0] == 401
        assert web.step(session="g", step_kind="start")[0] == 401
        assert web.step(session="g", step_kind="start", token="a-secret")[0] == 200
        assert web.step(session="h", step_kind="start", authorization="Bearer a-secret")[0] == 200
        with Game(server.tcp) as game:
            assert game.ask("i", "start", token="a-secret") == b"{}"
            game.send("j", "start", token="guess")
            assert game.is_closed()
