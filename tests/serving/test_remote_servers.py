"""Several servers of one policy: which of them answers, and what becomes of the calls of one that is lost."""

import contextlib
import logging
import os
import pickle
import re
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import penstock
from penstock.clients import EpisodeLostError, RefusedError
from penstock.errors import BadDataError, ConfigError
from penstock.serving.answer_times import AnswerTimes
from tests.children import stop
from tests.ports import free_port
from tests.serving.server.harness import TRAP, call, observations, policy_of, serving, until
from tests.serving.server.process import serving_apart

OBS = observations(40)


def url_of(server) -> str:
    return f"tcp://127.0.0.1:{server.tcp}"


def connected(*servers, **options: object) -> penstock.RemotePolicy:
    return penstock.connect_policy(list(map(url_of, servers)), **options)


def rows_of(server) -> int:
    """Rows that the policy of a server has answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/metrics", timeout=120.0) as reply:
        (found,) = re.findall(r"^penstock_batch_rows_sum\{.*\} (\S+)$", reply.read().decode(), re.MULTILINE)
    return int(float(found))


def sessions_of(server) -> int:
    return call(server, lambda: len(server.endpoint.sessions))


def prefer(remote: penstock.RemotePolicy, number: int) -> None:
    """Let this server be the one that is expected to answer soonest, whatever it did before."""
    remote._servers.each[number].times = AnswerTimes()


@contextlib.contextmanager
def no_pauses() -> Iterator[None]:
    """A server that failed is asked again at once."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("penstock.serving.answer_times._PAUSE_S", 0.0)
        patches.setattr("penstock.serving.answer_times._PAUSE_PER_SECOND", 0.0)
        yield


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the user was told."""
    return [record.getMessage() for record in caplog.records if record.name == "penstock.serving"]


@pytest.mark.parametrize("scheme", ["tcp", "http"])
def test_every_server_answers_as_the_policy_in_this_process(scheme: str) -> None:
    local = policy_of("plain")
    with serving() as first, serving() as second, serving(max_batch=16) as third:
        servers = (first, second, third)
        with penstock.connect_policy([f"{scheme}://127.0.0.1:{getattr(one, scheme)}" for one in servers]) as remote:
            # Those that were never asked come first.
            for obs in OBS[:3]:
                np.testing.assert_array_equal(remote(obs), local(obs))
            assert list(map(rows_of, servers)) == [1, 1, 1]
            for obs in OBS[3:]:
                np.testing.assert_array_equal(remote(obs), local(obs))
            # In requests that all of them take.
            np.testing.assert_array_equal(remote(OBS), local(OBS))
        assert sum(map(rows_of, servers)) == 80


def test_a_slow_server_gets_fewer_calls() -> None:
    with serving() as quick, serving("slow:0.05:plain") as slow, connected(quick, slow) as remote:
        for _ in range(4):
            for obs in OBS:
                remote(obs)
        assert 1 <= rows_of(slow) < rows_of(quick) / 3
        assert rows_of(slow) + rows_of(quick) == 160


def test_the_call_of_a_server_that_is_killed_is_answered_by_another(tmp_path, caplog) -> None:
    local, kind = policy_of("plain"), f"held:{tmp_path / 'held'}:plain"
    with serving_apart(kind) as first, serving_apart(kind) as second, serving_apart(kind) as third:
        servers = {server.process.pid: server for server in (first, second, third)}
        with connected(*servers.values()) as remote, ThreadPoolExecutor(1) as thread:
            for obs in OBS[:10]:
                np.testing.assert_array_equal(remote(obs), local(obs))
            before = {pid: rows_of(server) for pid, server in servers.items()}
            trap = np.full(3, TRAP)
            answer = thread.submit(remote, trap)
            held = tmp_path / "held"
            until(lambda: held.exists() and held.read_text().endswith("\n"))
            killed = servers.pop(int(held.read_text()))
            del before[killed.process.pid]
            os.kill(killed.process.pid, signal.SIGKILL)
            np.testing.assert_array_equal(answer.result(120.0), local(trap))
            for obs in OBS:
                np.testing.assert_array_equal(remote(obs), local(obs))
            # Each once.
            assert sum(map(rows_of, servers.values())) - sum(before.values()) == 1 + len(OBS)
            (line,) = told(caplog)
            assert line.startswith(f"the server at {url_of(killed)} does not answer: ")
            assert line.endswith("; the other servers answer its calls, and it is tried again after growing pauses")
            caplog.set_level(logging.INFO, "penstock.serving")
            with no_pauses(), serving_apart("plain", killed.tcp) as back:
                until(lambda: np.array_equal(remote(OBS[0]), local(OBS[0])) and rows_of(back))
            assert told(caplog)[1:] == [f"the server at {url_of(killed)} answers again"]


def test_a_server_that_does_not_answer_in_time_gives_no_answer_to_a_later_call(caplog) -> None:
    local = policy_of("plain")
    with serving_apart("plain") as first, serving() as second, connected(first, second, timeout=3.0) as remote:
        for obs in OBS[:4]:
            np.testing.assert_array_equal(remote(obs), local(obs))
        stop(first.process.pid)
        prefer(remote, 0)
        np.testing.assert_array_equal(remote(OBS[0]), local(OBS[0]))
        # Its reply to the call that was given up is on its way now.
        first.process.send_signal(signal.SIGCONT)
        answered = rows_of(first)
        prefer(remote, 0)
        for obs in OBS[1:]:
            np.testing.assert_array_equal(remote(obs), local(obs))
        assert rows_of(first) > answered
    text = f"the server at {url_of(first)} does not answer: no reply: timed out; "
    assert sum(line.startswith(text) for line in told(caplog)) == 1


def test_a_connection_that_a_server_has_closed_is_no_failure(caplog) -> None:
    local = policy_of("plain")
    with serving() as first, serving() as second, connected(first, second, patience=0.0) as remote:
        for obs in OBS[:4]:
            np.testing.assert_array_equal(remote(obs), local(obs))
        for server in (first, second):
            call(server, lambda server=server: [one.drop("for the test") for one in list(server.service.connections)])
        for number in range(2):
            prefer(remote, number)
            np.testing.assert_array_equal(remote(OBS[0]), local(OBS[0]))
    assert told(caplog) == []


def test_a_server_that_cannot_be_reached_at_first_is_asked_later(caplog) -> None:
    local, port = policy_of("plain"), free_port()
    with serving() as server, penstock.connect_policy([f"tcp://127.0.0.1:{port}", url_of(server)]) as remote:
        np.testing.assert_array_equal(remote(OBS[0]), local(OBS[0]))
        (line,) = told(caplog)
        assert line.startswith(f"the server at tcp://127.0.0.1:{port} does not answer: no server at 127.0.0.1:{port}: ")
        with no_pauses(), serving(tcp_port=port) as late:
            until(lambda: np.array_equal(remote(OBS[0]), local(OBS[0])) and rows_of(late))
    assert len(told(caplog)) == 1


def test_if_no_server_answers_each_is_named() -> None:
    gone = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    text = r"the server at {} does not answer: no server at .*; the server at {} does not answer: ".format(*gone)
    with pytest.raises(EpisodeLostError, match=text):
        penstock.connect_policy(gone, patience=0.0)
    with serving() as first, serving() as second:
        remote = connected(first, second, patience=0.0)
    with pytest.raises(EpisodeLostError) as caught:
        remote(OBS[0])
    assert f"the server at {url_of(first)} does not answer" in str(caught.value)
    assert f"the server at {url_of(second)} does not answer" in str(caught.value)


def test_servers_of_different_policies_are_refused() -> None:
    with serving() as first, serving("masked") as second, serving("memory") as third:
        text = f"the server at {url_of(second)} serves another policy than that at {url_of(first)}: its spaces are "
        with pytest.raises(ConfigError, match=text):
            connected(first, second)
        text = "another policy than .*: of a lane it remembers .* float32.*, not nothing"
        with pytest.raises(ConfigError, match=text):
            connected(first, third)
    with (
        serving() as first,
        serving(token="secret") as second,
        pytest.raises(RefusedError, match=f"the server at {url_of(second)} refuses: the token is missing or wrong"),
    ):
        connected(first, second)


@pytest.mark.parametrize(
    ("kind", "limits", "reason"),
    [
        ("masked", {}, "its spaces are "),
        ("plain", {"max_batch": 8}, "it takes 8 rows and 8,388,608 bytes of a request, not 64 rows and "),
    ],
)
def test_a_server_that_comes_back_with_another_policy_is_not_asked(kind: str, limits, reason: str, caplog) -> None:
    local = policy_of("plain")
    with serving() as first, contextlib.ExitStack() as servers:
        second = servers.enter_context(serving())
        with connected(first, second) as remote:
            for obs in OBS[:4]:
                np.testing.assert_array_equal(remote(obs), local(obs))
            servers.close()
            with no_pauses(), serving(kind, tcp_port=second.tcp, **limits) as other:
                prefer(remote, 1)
                for obs in OBS:
                    np.testing.assert_array_equal(remote(obs), local(obs))
                assert rows_of(other) == 0
    (line,) = told(caplog)
    text = f"the server at {url_of(second)} cannot be used: it serves another policy than when it was connected to: "
    assert line.startswith(text + reason)


def test_a_refusal_that_every_server_would_repeat_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as first, serving() as second, connected(first, second) as remote:
        with pytest.raises(BadDataError, match=r"obs has shape \[2\], wanted \[3\]"):
            remote([0.0, 0.0])
        monkeypatch.setattr("penstock.serving.remote_policy.encoded", lambda *_: b'{"obs": [0.0]}')
        with pytest.raises(RefusedError, match=r"the server at tcp://.* refuses: ") as caught:
            remote(OBS[0])
        assert caught.value.status == 400
        assert str(caught.value).count("the server at") == 1
        monkeypatch.undo()
        assert [server.times.failures for server in remote._servers.each] == [0, 0]
        remote(OBS[0])


def test_another_process_asks_all_servers() -> None:
    local = policy_of("plain")
    with serving() as first, serving() as second:
        with connected(first, second) as remote:
            kept = pickle.dumps(remote)
        unpickled = pickle.loads(kept)
        assert repr(unpickled) == repr(remote)
        assert f"toy, served at {url_of(first)}, {url_of(second)}; " in repr(remote)
        for obs in OBS[:2]:
            np.testing.assert_array_equal(unpickled(obs), local(obs))
        assert (rows_of(first), rows_of(second)) == (1, 1)
        unpickled.close()


def test_an_episode_stays_with_its_server_and_the_next_one_may_go_to_another() -> None:
    local = policy_of("memory")
    with serving("memory") as first, serving("memory") as second:
        with connected(first, second) as remote:
            there, here, homes = remote.session(2), local.session(2), []
            for _ in range(2):
                for step, obs in enumerate(OBS[:12].reshape(6, 2, 3)):
                    begins = [step == 0, step in {0, 3}]
                    np.testing.assert_array_equal(there.act(obs, begins), here.act(obs, begins))
                    homes.append((sessions_of(first), sessions_of(second)))
            # One that was never asked comes first, so the second episodes begin at the other server.
            assert len(set(homes[:6])) == len(set(homes[6:])) == 1
            assert {homes[0], homes[6]} == {(2, 0), (0, 2)}
        assert (sessions_of(first), sessions_of(second)) == (0, 0)


def test_episodes_begin_anew_elsewhere_if_their_server_is_killed() -> None:
    local = policy_of("memory")
    with serving_apart("memory") as first, serving_apart("memory") as second, connected(first, second) as remote:
        there, here = remote.session(2), local.session(2)
        for obs in OBS[:4].reshape(2, 2, 3):
            np.testing.assert_array_equal(there.act(obs), here.act(obs))
        (home,) = (server for server in (first, second) if rows_of(server))
        os.kill(home.process.pid, signal.SIGKILL)
        home.process.wait(60.0)
        text = f"the server at {url_of(home)} does not answer: .*; what it remembers of this acting session is lost"
        with pytest.raises(EpisodeLostError, match=text):
            there.act(OBS[:2])
        with pytest.raises(EpisodeLostError, match=r"was lost .*; begin all episodes anew: act\(obs, first=True\)"):
            there.act(OBS[:2], [True, False])
        here = local.session(2)
        for number, obs in enumerate(OBS[:8].reshape(4, 2, 3)):
            np.testing.assert_array_equal(there.act(obs, number == 0), here.act(obs))


def test_episodes_for_which_a_server_has_no_room_begin_at_another() -> None:
    local = policy_of("memory")
    with (
        serving("memory", max_sessions=1) as full,
        serving("memory") as roomy,
        connected(full, roomy, patience=0.0) as remote,
    ):
        there, here = remote.session(2), local.session(2)
        for number, obs in enumerate(OBS.reshape(20, 2, 3)):
            begins = number % 4 == 0
            np.testing.assert_array_equal(there.act(obs, begins), here.act(obs, begins))
            # The one that has begun at the full server has ended there.
            assert (sessions_of(full), sessions_of(roomy)) == (0, 2)


def test_addresses_that_cannot_be_used_together() -> None:
    with pytest.raises(ConfigError, match="the list has no address; write those of the servers"):
        penstock.connect_policy([])
    with pytest.raises(ConfigError, match="tcp://localhost:1 stands twice among the addresses"):
        penstock.connect_policy(["tcp://localhost:1", "tcp://localhost:2", "tcp://localhost:1"])
    with pytest.raises(ConfigError, match="'grpc://localhost:1' is no address of a server"):
        penstock.connect_policy(["tcp://localhost:1", "grpc://localhost:1"])
    with serving("memory") as first, serving("memory") as second:
        urls = [url_of(first), f"http://127.0.0.1:{second.http}"]
        with penstock.connect_policy(urls) as remote, pytest.raises(ConfigError, match="need a tcp:// address"):
            remote.session(1)
