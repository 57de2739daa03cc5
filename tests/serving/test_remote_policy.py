"""The policy of a server, called like one of this process: the same answers, and errors that name the server."""

import contextlib
import copy
import gc
import json
import multiprocessing
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.clients import EpisodeLostError, RefusedError
from penstock.errors import BadDataError, ConfigError, PenstockError, UsageError
from penstock.serving.description import QUESTION, Description
from penstock.types import Spaces
from tests.ports import free_port
from tests.serving.server.harness import SPACES, Game, call, policy_of, serving, until

WITHOUT_MEMORY = [kind for kind in SPACES if kind != "memory"]


def rows_of(spaces: Spaces, count: int) -> tuple[object, np.ndarray | None]:
    """A batch of observations, and their masks."""
    generator = np.random.default_rng(3)
    fields: dict[str, object] = {}
    for name, space in spaces.seen:
        if hasattr(space, "n"):
            fields[name] = generator.integers(space.start, space.start + space.n, count)
        else:
            fields[name] = generator.uniform(-1.0, 1.0, (count, *space.shape)).astype(np.float32)
    mask = None
    if spaces.mask is not None:
        mask = generator.integers(0, 2, (count, 4)).astype(np.uint8)
        mask[:, 1] = 1
    if "obs" in fields:
        return fields["obs"], mask
    if "obs.0" in fields:
        return (fields["obs.0"], {"turn": fields["obs.1.turn"]}), mask
    return {name.removeprefix("obs."): values for name, values in fields.items()}, mask


def same(found: object, wanted: object) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, list):
        for part, wanted_part in zip(found, wanted, strict=True):
            same(part, wanted_part)
        return
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key, part in wanted.items():
            same(found[key], part)
        return
    np.testing.assert_array_equal(found, wanted)
    assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)


@pytest.mark.parametrize("scheme", ["tcp", "http"])
@pytest.mark.parametrize("kind", WITHOUT_MEMORY)
def test_it_answers_as_the_policy_in_this_process(kind: str, scheme: str) -> None:
    local = policy_of(kind)
    with serving(kind) as server, connected(server, scheme=scheme) as remote:
        assert remote.spaces == local.spaces
        assert remote.carry == ()
        # More rows than one request may hold.
        for count in (1, 150):
            obs, mask = rows_of(local.spaces, count)
            same(remote(obs, action_mask=mask), local(obs, action_mask=mask))
            same(remote.session(count).act(obs, action_mask=mask), local.session(count).act(obs, action_mask=mask))
        obs, mask = rows_of(local.spaces, 0)
        same(remote(obs, action_mask=mask), local(obs, action_mask=mask))
        one, mask = (None if part is None else first_of(part) for part in rows_of(local.spaces, 1))
        same(remote(one, action_mask=mask), local(one, action_mask=mask))


def first_of(batch: object) -> object:
    if isinstance(batch, dict):
        return {key: first_of(part) for key, part in batch.items()}
    return tuple(map(first_of, batch)) if isinstance(batch, tuple) else batch[0]


def connected(server, *, scheme: str = "tcp", **options: object) -> penstock.RemotePolicy:
    return penstock.connect_policy(f"{scheme}://127.0.0.1:{getattr(server, scheme)}", **options)


def test_a_policy_with_memory_remembers_each_lane_on_the_server() -> None:
    # More lanes than one connection has sessions.
    lanes, local = 70, policy_of("memory")
    generator = np.random.default_rng(5)
    with serving("memory") as server:
        with connected(server) as remote:
            assert remote.carry == local.carry
            there, here = remote.session(lanes), local.session(lanes)
            for step in range(6):
                obs = generator.uniform(-1.0, 1.0, (lanes, 3)).astype(np.float32)
                first = np.arange(lanes) % 7 == step
                same(there.act(obs, first), here.act(obs, first))
            assert len(server.endpoint.sessions) == lanes
        # The end of the block has ended them.
        assert call(server, lambda: len(server.endpoint.sessions)) == 0


def test_a_session_goes_on_after_a_close_only_with_new_episodes() -> None:
    local, obs = policy_of("memory"), np.zeros((2, 3), np.float32)
    with serving("memory") as server, connected(server) as remote:
        session = remote.session(2)
        session.act(obs)
        remote.close()
        with pytest.raises(EpisodeLostError, match=r"begin all episodes anew: act\(obs, first=True\)"):
            session.act(obs, [True, False])
        same(session.act(obs, True), local.session(2).act(obs))


def test_memory_is_not_here() -> None:
    with serving("memory") as server, connected(server) as remote:
        with pytest.raises(UsageError, match=r"begin an acting session, policy.session\(n\)"):
            remote([0.0, 0.0, 0.0])
        session = remote.session(1)
        with pytest.raises(UsageError, match=f"the server at tcp://127.0.0.1:{server.tcp} keeps what this policy"):
            session.carry = {}
        with connected(server, scheme="http") as over_http, pytest.raises(ConfigError, match="need a tcp:// address"):
            over_http.session(1)


def test_what_is_no_observation_is_refused_here() -> None:
    with serving("plain") as server, connected(server) as remote:
        with pytest.raises(BadDataError, match=r"obs has shape \[2\], wanted \[3\]"):
            remote([0.0, 0.0])
        with pytest.raises(BadDataError, match="obs holds NaN"):
            remote([0.0, 0.0, np.nan])


def test_a_batch_goes_in_requests_that_the_server_takes() -> None:
    local = policy_of("plain")
    obs, _ = rows_of(local.spaces, 50)
    with serving("plain", max_body=256) as server, connected(server, patience=0.0) as remote:
        same(remote(obs), local(obs))
        same(remote.session(50).act(obs), local.session(50).act(obs))
    one = np.full(3, 0.123456, np.float32)
    with serving("plain", max_body=64) as server, connected(server, patience=0.0) as remote:
        with pytest.raises(
            UsageError, match=r"an observation has \d+ bytes as JSON, and the server at .* takes 64; start"
        ):
            remote(one)
        same(remote(np.zeros(3, np.float32)), local(np.zeros(3, np.float32)))


@pytest.mark.parametrize("kind", ["plain", "memory"])
def test_a_forked_process_takes_no_reply_of_its_parent(kind: str) -> None:
    local, obs = policy_of(kind), np.zeros((1, 3), np.float32)
    with serving(kind) as server, connected(server, patience=0.0) as remote:
        session = remote.session(1)
        same(session.act(obs), local.session(1).act(obs))

        def play() -> None:
            mine = remote.session(1)
            same(mine.act(obs), local.session(1).act(obs))
            if kind == "memory":
                with pytest.raises(UsageError, match="another process has begun this acting session"):
                    session.act(obs, True)
                # It ends sessions of its own alone.
                remote.close()

        child = multiprocessing.get_context("fork").Process(target=play)
        child.start()
        child.join(60.0)
        assert child.exitcode == 0
        same(session.act(obs, True), local.session(1).act(obs))
        assert len(server.endpoint.sessions) == (kind == "memory")


def play_two_steps(remote: penstock.RemotePolicy, obs: np.ndarray, answers) -> None:
    with remote:
        session = remote.session(len(obs))
        answers.put([session.act(obs), session.act(obs), repr(remote)])


@pytest.mark.parametrize("kind", ["plain", "memory"])
def test_a_process_that_unpickles_it_connects_for_itself(kind: str) -> None:
    obs, spawn = np.full((2, 3), 0.5, np.float32), multiprocessing.get_context("spawn")
    here, answers = policy_of(kind).session(2), spawn.SimpleQueue()
    with serving(kind, token="secret") as server, connected(server, token="secret", patience=0.0) as remote:
        session = remote.session(2)
        first = session.act(obs)
        same(first, here.act(obs))
        child = spawn.Process(target=play_two_steps, args=(remote, obs, answers))
        child.start()
        child.join(60.0)
        assert child.exitcode == 0
        second = here.act(obs)
        found = answers.get()
        same(found[:2], [first, second])
        assert found[2] == repr(remote)
        # The sessions of this process go on where they were.
        same(session.act(obs), second)
        assert call(server, lambda: len(server.endpoint.sessions)) == (2 if kind == "memory" else 0)


def test_a_pickle_opens_no_connection_and_a_copy_has_one_of_its_own() -> None:
    obs = np.zeros(3, np.float32)
    with serving("plain") as server, connected(server, patience=0.0) as remote:
        wanted, kept = remote(obs), pickle.dumps(remote)
        copied = copy.deepcopy(remote)
        remote.close()
        same(copied(obs), wanted)
        copied.close()
    # Nobody serves it any more. It is asked for an action before that is noticed.
    unpickled = pickle.loads(kept)
    assert unpickled.spaces == SPACES["plain"]
    with pytest.raises(EpisodeLostError, match=rf"the server at tcp://127\.0\.0\.1:{server.tcp} does not answer"):
        unpickled(obs)


def test_an_acting_session_with_memory_does_not_travel() -> None:
    with serving("memory") as server, connected(server) as remote:
        session = remote.session(1)
        with pytest.raises(UsageError, match=r"stays in the process that has begun it: pickle the policy, and begin"):
            pickle.dumps(session)


def test_it_says_in_one_line_what_it_is() -> None:
    with serving("plain") as server, connected(server) as remote:
        assert repr(remote) == (
            f"<Policy: toy, version 7, served at tcp://127.0.0.1:{server.tcp}; obs float32[3] -> float32[2]; no memory>"
        )


def test_a_policy_of_several_is_named() -> None:
    with serving("plain", also={"swing": "nested"}) as server:
        with connected(server, policy="swing") as remote:
            assert remote.spaces == SPACES["nested"]
        with pytest.raises(RefusedError, match=r"the server at tcp://.* refuses: there is no policy 'flap'"):
            connected(server, policy="flap")


def test_the_connection_of_a_session_that_nobody_has_any_more_is_closed() -> None:
    with serving("memory") as server, connected(server) as remote:
        session = remote.session(1)
        session.act(np.zeros((1, 3), np.float32))
        assert call(server, lambda: len(server.service.asked_over)) == 1
        del session
        gc.collect()
        until(lambda: call(server, lambda: len(server.service.asked_over)) == 0)


def test_why_a_server_cannot_be_asked() -> None:
    with serving("plain", token="secret") as server:
        with pytest.raises(RefusedError, match=r"the server at tcp://.* refuses: the token is missing or wrong"):
            connected(server)
        with connected(server, token="secret") as remote:
            assert remote([0.1, 0.2, 0.3]).shape == (2,)
    with serving("plain", codec="raw") as server, pytest.raises(RefusedError, match="18 bytes, wanted 12 of float32"):
        connected(server)
    with pytest.raises(ConfigError, match="'localhost:8001' is no address of a server"):
        penstock.connect_policy("localhost:8001")
    gone = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(EpisodeLostError, match=rf"the server at {gone} does not answer: no server at .* refused"):
        penstock.connect_policy(gone, patience=0.0)
    with pytest.raises(ConfigError, match=re.escape(f"its policy is penstock.connect_policy({gone!r})")):
        penstock.load_policy(gone)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"url": None}, "None is no address of a server; write tcp://"),
        ({"timeout": 0.0}, "timeout is 0.0; give a number of seconds above 0"),
        ({"timeout": "5"}, "timeout is '5'; give a number of seconds above 0"),
        ({"patience": -1.0}, "patience is -1.0; give a number of seconds, or 0 to try once"),
    ],
)
def test_arguments_that_cannot_be_used(given: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        penstock.connect_policy(**{"url": "tcp://127.0.0.1:1", **given})


def test_a_description_survives_as_json_and_other_json_is_none() -> None:
    policy = policy_of("memory")
    told = Description("toy", 7, SPACES["parts"], policy.carry, 64, 8 << 20)
    assert Description.from_json(json.loads(json.dumps(told.to_json()))) == told
    with serving("plain") as server, Game(server.tcp) as game:
        found = json.loads(game.ask("", "", QUESTION))
        assert Description.from_json(found) == Description("toy", 7, SPACES["plain"], (), 64, 8 << 20)
        # However it is written. An observation beside it is answered.
        assert json.loads(game.ask("", "", b' {"describe":true}')) == found
        assert "action" in json.loads(game.ask("", "", b'{"obs": [0.1, 0.2, 0.3], "describe": true}'))


def test_a_server_that_answers_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("plain") as server:
        monkeypatch.setattr(Description, "to_json", lambda _: {"name": "toy"})
        with pytest.raises(PenstockError, match="does not describe its policy: KeyError"):
            connected(server)


SMALL = {"hidden_sizes": (8,), "num_envs": 2, "num_steps": 32, "mini_batch_size": 32, "timesteps": 128}
RUNS = {
    "plain": {"env": "Pendulum-v1"},
    "memory": {"env": "tests.environments:BlinkEnv", "model": "lstm", "memory_size": 8},
}


@contextlib.contextmanager
def process_of(run: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """A ``penstock serve`` that listens at this port, and is killed at the end."""
    command = [sys.executable, "-m", "penstock", "serve", str(run), "--port", "0", "--tcp_port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("serving ")
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("shared_templates")
@pytest.mark.parametrize("kind", RUNS)
def test_a_server_that_was_killed_and_is_back_answers_the_same_policy(tmp_path: Path, kind: str) -> None:
    settings = {**SMALL, **RUNS[kind], "eval_episodes": 1, "log_dir": str(tmp_path)}
    run = penstock.train(settings, quiet=True).run_folder
    local, port = penstock.load_policy(run), free_port()
    (_, space), generator = local.spaces.obs[0], np.random.default_rng(1)
    rows = [generator.uniform(-1.0, 1.0, (3, *space.shape)).astype(np.float32) for _ in range(4)]
    here = local.session(3)
    with process_of(run, port) as process:
        remote = penstock.connect_policy(f"tcp://127.0.0.1:{port}", patience=0.0)
        there = remote.session(3)
        for obs in rows[:2]:
            same(there.act(obs), here.act(obs))
        process.send_signal(signal.SIGKILL)
        process.wait(60.0)
        with pytest.raises(EpisodeLostError, match=f"the server at tcp://127.0.0.1:{port} does not answer"):
            there.act(rows[2])
    with process_of(run, port):
        if kind == "memory":
            with pytest.raises(EpisodeLostError, match=f"tcp://127.0.0.1:{port} remembers .* was lost"):
                there.act(rows[2])
        # On a new connection.
        for number, obs in enumerate(rows[2:]):
            same(there.act(obs, number == 0), here.act(obs, number == 0))
        remote.close()


@pytest.mark.usefixtures("shared_templates")
def test_a_call_waits_for_a_server_that_comes_back(tmp_path: Path) -> None:
    settings = {**SMALL, **RUNS["plain"], "eval_episodes": 1, "log_dir": str(tmp_path)}
    run = penstock.train(settings, quiet=True).run_folder
    port, obs = free_port(), [0.1, 0.2, 0.3]
    with process_of(run, port):
        remote = penstock.connect_policy(f"tcp://127.0.0.1:{port}")
        wanted = remote(obs)
    # Nothing listens for as long as the next process takes to start.
    command = [sys.executable, "-m", "penstock", "serve", str(run), "--port", "0", "--tcp_port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            same(remote(obs), wanted)
        finally:
            process.kill()
    remote.close()
