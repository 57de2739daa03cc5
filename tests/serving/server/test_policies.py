"""Several policies in one server: each has its own sessions, versions and metrics, over every protocol."""

import asyncio
import http.client
import json
import os
import signal
import threading

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from penstock.clients import AsyncGameClient, GameClient
from penstock.config.commands import ServeOptions
from penstock.errors import ConfigError, PenstockError
from penstock.serving.server.command import named
from tests.serving.server.harness import Game, Run, call, make_idle, observations, policy_of, serving

BOTH = {"swing": "memory"}
"""Beside the policy toy, which has no memory."""


def tick(obs) -> bytes:
    return json.dumps({"obs": np.asarray(obs).tolist()}).encode()


def step(port: int, body: bytes = b"", **headers: str) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120.0)
    connection.request("POST", "/step", body, headers)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


@pytest.fixture(params=["http", "grpc"])
def triton(request: pytest.FixtureRequest):
    """The client package, and a function that connects it."""
    package = {"http": triton_http, "grpc": triton_grpc}[request.param]

    def connect(server):
        port = server.http if request.param == "http" else server.grpc
        return package.InferenceServerClient(f"127.0.0.1:{port}")

    return package, connect


def inputs(package, obs):
    one = package.InferInput("obs", list(obs.shape), "FP32")
    one.set_data_from_numpy(obs)
    return [one]


def versions_of(client, name: str) -> list[str]:
    found = client.get_model_metadata(name)
    return found["versions"] if isinstance(found, dict) else list(found.versions)


def test_tritonclient_asks_two_policies(triton) -> None:
    package, connect = triton
    obs = observations(4)
    alone = policy_of("memory").session(1)
    with serving(also=BOTH, grpc=True) as server, connect(server) as client:
        assert client.is_server_ready()
        assert client.is_model_ready("toy")
        assert client.is_model_ready("swing", "7")
        found = client.infer("toy", inputs(package, obs)).as_numpy("action")
        np.testing.assert_array_equal(found, policy_of("plain")(obs))
        for number, row in enumerate(obs):
            settings = {"sequence_id": 3, "sequence_start": number == 0}
            found = client.infer("swing", inputs(package, row[None]), **settings).as_numpy("action")
            np.testing.assert_array_equal(found, alone.act(row[None]))
        with pytest.raises(InferenceServerException, match="there is no model 'sway'; this server has 'toy', 'swing'"):
            client.infer("sway", inputs(package, obs))
        with pytest.raises(InferenceServerException, match="model 'swing' has no version '8'"):
            client.is_model_ready("swing", "8") or client.get_model_metadata("swing", "8")


def test_tritonclient_asks_for_either_version_of_a_canary(triton) -> None:
    package, connect = triton
    obs = observations(3)
    with serving(grpc=True) as server, connect(server) as client:
        Run(server, share=0.5).publish(8)
        assert versions_of(client, "toy") == ["7", "8"]
        for version, seed in (("7", 1), ("8", 8)):
            for _ in range(3):
                result = client.infer("toy", inputs(package, obs), model_version=version)
                np.testing.assert_array_equal(result.as_numpy("action"), policy_of("plain", seed)(obs))
                response = result.get_response()
                assert (response["model_version"] if isinstance(response, dict) else response.model_version) == version
        call(server, lambda: server.endpoint.roll_back("the test wants it"))
        assert versions_of(client, "toy") == ["7"]
        with pytest.raises(InferenceServerException, match="has no version '8'"):
            client.infer("toy", inputs(package, obs), model_version="8")


def test_a_sequence_stays_with_the_version_that_it_names(triton) -> None:
    package, connect = triton
    obs = observations(4)
    alone = {"7": policy_of("memory").session(1), "8": policy_of("memory", 8).session(1)}
    with serving("memory", grpc=True) as server, connect(server) as client:
        Run(server, "memory", share=0.5).publish(8)
        for number, row in enumerate(obs):
            for version, session in alone.items():
                # Only the start of a sequence needs to name it.
                settings = {"model_version": version if number < 2 else "", "sequence_start": number == 0}
                result = client.infer("toy", inputs(package, row[None]), sequence_id=int(version), **settings)
                np.testing.assert_array_equal(result.as_numpy("action"), session.act(row[None]))
        with pytest.raises(InferenceServerException, match="answered by version 7, not by '8'"):
            client.infer("toy", inputs(package, obs[:1]), sequence_id=7, model_version="8")


def test_one_sequence_at_two_policies_has_two_memories(triton) -> None:
    package, connect = triton
    rows = {"toy": observations(4), "swing": observations(4, 1)}
    alone = {name: policy_of("memory").session(1) for name in rows}
    with serving("memory", also=BOTH, grpc=True) as server, connect(server) as client:
        for number in range(4):
            for name, session in alone.items():
                row = rows[name][number : number + 1]
                settings = {"sequence_id": 3, "sequence_start": number == 0, "sequence_end": number == 3}
                found = client.infer(name, inputs(package, row), **settings).as_numpy("action")
                np.testing.assert_array_equal(found, session.act(row))
        assert [len(endpoint.sessions) for endpoint in server.endpoints] == [0, 0]


def test_a_game_names_its_policy_when_it_starts() -> None:
    """Over HTTP by a header, over TCP by the key; without, it is the first policy."""
    obs = observations(5)
    alone, plain = policy_of("memory").session(1), policy_of("plain")
    wanted = [alone.act(row[None])[0] for row in obs]
    with serving(also=BOTH) as server, Game(server.tcp) as game:
        game.ask("tcp", "start", key="policy=swing")
        game.ask("any", "start", key="a key of another kind")
        assert step(server.http, session="http", step_kind="start", policy="swing") == (200, {})
        for row, action in zip(obs, wanted, strict=True):
            assert np.float32(json.loads(game.ask("tcp", "tick", tick(row)))["action"]).tolist() == action.tolist()
            found = step(server.http, tick(row), session="http", step_kind="tick")[1]["action"]
            assert np.float32(found).tolist() == action.tolist()
            assert json.loads(game.ask("any", "tick", tick(row)))["action"] == plain(row).tolist()
        assert step(server.http, tick(obs[0]), policy="toy")[1]["action"] == plain(obs[0]).tolist()
        page = server.server._service.metrics.page("")[0].decode()
        assert 'penstock_sessions{policy="toy",version="7"} 1.0' in page
        assert 'penstock_sessions{policy="swing",version="7"} 2.0' in page
        # The name of a session is free again once it has ended, and belongs to one policy at a time.
        status, found = step(server.http, session="http", step_kind="start", policy="toy")
        assert (status, found["detail"]) == (409, "session 'http' has started already; stop it first")
        assert step(server.http, session="http", step_kind="stop")[0] == 200
        assert step(server.http, session="http", step_kind="start", policy="toy")[0] == 200
        status, found = step(server.http, session="x", step_kind="start", policy="sway")
        assert (status, found["detail"]) == (404, "there is no policy 'sway'; this server has 'toy', 'swing'")
        game.send("y", "start", key="policy=sway")
        assert game.is_closed()


WAYS = [("http", None), ("tcp", 1), ("tcp", 2)]


@pytest.mark.parametrize(("scheme", "version"), WAYS)
def test_the_clients_name_a_policy(scheme: str, version: int | None) -> None:
    obs = observations(3)
    alone = policy_of("memory").session(1)
    wanted = [alone.act(row[None])[0].tolist() for row in obs]

    async def play(url: str) -> list[list[float]]:
        async with AsyncGameClient(url, "b", policy="swing", version=version) as client:
            await client.start()
            found = [np.float32(await client.tick(row)).tolist() for row in obs]
            await client.stop()
        return found

    with serving(also=BOTH) as server:
        url = f"{scheme}://127.0.0.1:{getattr(server, scheme)}"
        with GameClient(url, "a", policy="swing", version=version) as client:
            client.start()
            assert [np.float32(client.tick(row)).tolist() for row in obs] == wanted
            client.stop()
        assert asyncio.run(play(url)) == wanted
        with GameClient(url, "c", policy="sway", version=version, patience=0.0) as client, pytest.raises(PenstockError):
            client.start()


def test_a_session_that_was_idle_for_too_long_may_begin_at_another_policy() -> None:
    with serving(also=BOTH) as server:
        assert step(server.http, session="g", step_kind="start")[0] == 200
        make_idle(server)
        statuses = []
        while 200 not in statuses:
            threading.Event().wait(0.05)
            statuses.append(step(server.http, session="g", step_kind="start", policy="swing")[0])
        assert set(statuses) <= {200, 409}
        assert statuses[-1] == 200


def test_kill_9_of_one_policys_worker_leaves_the_other_alone() -> None:
    rows = {name: observations(60, seed) for seed, name in enumerate(("toy", "swing"))}
    alone = {"toy": policy_of("plain").session(1), "swing": policy_of("memory").session(1)}
    wanted = {name: [session.act(row[None])[0] for row in rows[name]] for name, session in alone.items()}
    found: dict[str, list] = {"toy": [], "swing": []}

    def play(port: int, name: str) -> None:
        with Game(port) as game:
            game.ask(name, "start", key=f"policy={name}")
            for row in rows[name]:
                found[name].append(json.loads(game.ask(name, "tick", tick(row)))["action"])

    with serving(also=BOTH, workers=1) as server:
        threads = [threading.Thread(target=play, args=(server.tcp, name)) for name in found]
        for thread in threads:
            thread.start()
        while len(found["swing"]) < 20:
            threading.Event().wait(0.005)
        engine = server.endpoints.find("swing").stable.engine
        os.kill(engine._workers[0].process.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
        assert server.endpoints.find("toy").restarts == 0
    for name, actions in wanted.items():
        np.testing.assert_array_equal(np.array(found[name], np.float32), actions)


def admin(port: int, method: str, path: str, token: str = "") -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120.0)
    connection.request(method, path, b"", {"Authorization": f"Bearer {token}"} if token else {})
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def test_an_administrator_promotes_and_rolls_back() -> None:
    with serving(token="a client's", admin_token="secret") as server:
        run = Run(server, share=0.25)
        run.publish(8)
        for token in ("", "a client's", "secre"):
            assert admin(server.http, "POST", "/admin/policies/toy/promote", token)[0] == 401
        for path, status in (("toy/promote", 405), ("/promote", 404), ("toy/erase", 404)):
            assert admin(server.http, "GET", f"/admin/policies/{path}", "secret")[0] == status, path
        assert admin(server.http, "POST", "/admin/policies/chess/promote", "secret")[0] == 404
        shown = {"version": "8", "share": 0.25, "sessions": 0, "failures": 0}
        status, found = admin(server.http, "GET", "/admin/policies", "secret")
        assert (status, found["policies"][0]["versions"][1]) == (200, shown)
        assert admin(server.http, "POST", "/admin/policies/toy/promote", "secret")[0] == 200
        assert server.endpoint.stable.number == 8
        status, found = admin(server.http, "POST", "/admin/policies/toy/rollback", "secret")
        assert (status, found["error"]) == (409, "policy toy has no canary; version 8 answers everything")
        run.publish(9)
        assert admin(server.http, "POST", "/admin/policies/toy/rollback", "secret")[0] == 200
        assert server.endpoint.stable.number == 8
        assert server.endpoint.canary is None


def test_without_a_file_of_tokens_nobody_administers() -> None:
    with serving() as server:
        status, found = admin(server.http, "POST", "/admin/policies/toy/promote")
        assert status == 403
        assert "--admin_token_file" in found["error"]


def test_policies_are_named_on_the_command_line() -> None:
    assert named(["latest"], "policy") == {"policy": "latest"}
    assert named(["latest"], "x") == {"x": "latest"}
    assert named(["a=policy/", "b=latest", "run"], "c") == {"a": "policy/", "b": "latest", "c": "run"}
    assert named(["./lr=0.1", "logs/lr=0.2"][:1], "policy") == {"policy": "./lr=0.1"}
    assert named(["a=logs/lr=0.2"], "policy") == {"a": "logs/lr=0.2"}


@pytest.mark.parametrize(
    ("policies", "name", "text"),
    [
        (["a=x", "a=y"], "policy", "two policies have the name a: x and y"),
        (["x", "y"], "policy", "two policies have the name policy: x and y; write NAME=y"),
        (["a=x"], "b", "--name b is for a policy without a name"),
    ],
)
def test_names_that_contradict_each_other_are_one_line(policies, name, text) -> None:
    with pytest.raises(ConfigError, match=text):
        named(policies, name)
    assert ServeOptions(policies=tuple(policies)).name == "policy"
