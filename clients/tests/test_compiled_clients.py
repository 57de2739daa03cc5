"""The clients in other languages: servers that answer, refuse, are away, silent, or talk nonsense; a game that trains.

`make test-clients` builds the programs of each language first. `talk` carries out calls and prints what came of them.
All clients must behave alike.
"""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.clients import GameClient
from penstock.gamecore import delta
from penstock.serving.server.protocols.gamecore.bases import Bases
from tests.clients.test_clients import Answering
from tests.serving.server.harness import call, make_idle, policy_of, serving, until
from tests.serving.server.test_command import SMALL, served

ROOT = Path(__file__).parents[2]
TICKS = ["tick " + json.dumps({"obs": [0.1, value, 0.3]}) for value in (0.2, 0.25, -0.125, 0.0, 0.2)]
EPISODES = ["start game 0", *TICKS, "stop", "start game 0", *TICKS, 'stop {"terminated": true}']
Replies = list[tuple[int, str]]
Talk = Callable[..., Replies]


@pytest.fixture(params=["cpp", "go"])
def programs(request) -> Path:
    """The folder with the programs of one language."""
    return ROOT / "build/clients" / request.param


@pytest.fixture
def talk(programs: Path) -> Talk:
    def talked(port: int, calls: list[str], *flags: str) -> Replies:
        """Status and body of each call."""
        command = [str(programs / "talk"), "127.0.0.1", str(port), *flags]
        ended = subprocess.run(
            command, input="\n".join(calls), capture_output=True, text=True, check=False, timeout=120
        )
        assert ended.returncode == 0, ended.stderr
        lines = ended.stdout.splitlines()
        if "--async" in flags:
            assert lines.pop() == "out of order: 0"
        assert len(lines) == len(calls)
        return [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in lines]

    return talked


def actions(found: Replies) -> list[object]:
    """The actions among the replies, all of which are answers."""
    assert {status for status, _ in found} == {200}
    return [json.loads(body)["action"] for _, body in found if body]


ways = pytest.mark.parametrize("flags", [[], ["--delta"], ["--async"], ["--async", "--delta"]], ids=" ".join)


@ways
def test_it_gets_the_actions_that_the_python_client_gets(talk: Talk, flags: list[str]) -> None:
    with serving() as server:
        with GameClient(f"http://127.0.0.1:{server.http}", "python") as client:
            client.start()
            wanted = [client.tick([0.1, value, 0.3]) for value in (0.2, 0.25, -0.125, 0.0, 0.2)]
        assert actions(talk(server.tcp, EPISODES, *flags)) == wanted * 2
        assert server.endpoint.sessions.has(("gamecore", "python"))
        assert not server.endpoint.sessions.has(("gamecore", "game-agent-0"))


@pytest.mark.parametrize("flags", [[], ["--async"]], ids=" ".join)
def test_a_refusal_is_a_status_with_its_text_and_changes_nothing(talk: Talk, flags: list[str]) -> None:
    calls = [TICKS[0], "start game 0", TICKS[0], 'tick {"obs": [1]}', TICKS[0], "stop", "stop"]
    with serving() as server:
        found = talk(server.tcp, calls, *flags)
    assert [status for status, _ in found] == [400, 200, 200, 400, 200, 200, 404]
    assert found[0][1] == "the session is missing"
    assert "obs has shape" in found[3][1]
    assert found[4] == found[2]
    assert "there is no session 'game-agent-0'" in found[6][1]


def test_the_token_is_in_the_greeting(talk: Talk) -> None:
    with serving(token="a-secret") as server:
        assert talk(server.tcp, ["start game 0"], "--token", "guess") == [(401, "the token is missing or wrong")]
        assert talk(server.tcp, ["start game 0", "stop"], "--token", "a-secret") == [(200, ""), (200, "")]


def test_the_key_names_a_policy_of_several(talk: Talk) -> None:
    call = 'tick {"obs": {"dial": [0.5, -0.5], "which": 2}}'
    with serving(also={"second": "nested"}) as server:
        found = talk(server.tcp, ["start game 0", call, "stop"], "--key", "policy=second")
    assert actions(found) == [policy_of("nested")({"dial": [0.5, -0.5], "which": 2})]


def test_a_policy_that_nobody_serves_is_not_waited_for(talk: Talk) -> None:
    with serving(also={"second": "nested"}) as server:
        # With patience for a minute, this would end in the time limit of the call.
        ((status, said),) = talk(server.tcp, ["start game 0"], "--key", "policy=third", "--patience", "1000000")
    assert (status, "third" in said) == (404, True)


def test_an_episode_that_the_server_has_ended_begins_anew(talk: Talk) -> None:
    with serving() as server, ThreadPoolExecutor() as pool:
        found = pool.submit(talk, server.tcp, ["start game 0", "wait 3000", "start game 0", TICKS[0]])
        until(lambda: server.endpoint.sessions.has(("gamecore", "game-agent-0")))
        make_idle(server)
        call(server, server.endpoint.sweep)
        assert not server.endpoint.sessions.has(("gamecore", "game-agent-0"))
        assert [status for status, _ in found.result()] == [200, 200, 200, 200]


def test_start_waits_for_a_server_that_is_full(talk: Talk) -> None:
    with serving(max_sessions=1) as server:
        other = GameClient(f"http://127.0.0.1:{server.http}", "other")
        other.start()
        ((status, said),) = talk(server.tcp, ["start game 0"], "--patience", "0")
        assert (status, "all 1 sessions are taken" in said) == (429, True)
        threading.Timer(0.3, other.stop).start()
        assert talk(server.tcp, ["start game 0", "stop"], "--patience", "20000") == [(200, ""), (200, "")]


def test_an_episode_that_is_still_open_begins_anew(talk: Talk) -> None:
    with serving() as server:
        assert talk(server.tcp, ["start game 0", TICKS[0]])[1][0] == 200
        assert talk(server.tcp, ["start game 0", TICKS[0], "stop"])[2] == (200, "")


def test_a_server_that_has_forgotten_the_base_gets_the_whole_body(talk: Talk, monkeypatch) -> None:
    large = [f'tick {{"obs": [0.1, 0.2, 0.3], "at": {at}, "more": "{"x" * 3000}"}}' for at in range(4)]
    taken: list[int] = []
    with serving() as server:
        wanted = actions(talk(server.tcp, ["start game 0", *large, "stop"]))
        keep = Bases.keep
        monkeypatch.setattr(
            Bases, "keep", lambda bases, *given: (taken.append(len(given[0].body)), keep(bases, *given))
        )
        assert actions(talk(server.tcp, ["start game 0", *large, "stop"], "--delta")) == wanted
        assert [size > 3000 for size in taken] == [True, False, False, False]
        taken.clear()
        monkeypatch.setattr(Bases, "keep", lambda _, request, body: taken.append(len(request.body)))
        assert actions(talk(server.tcp, ["start game 0", *large, "stop"], "--delta")) == wanted
        assert [size > 3000 for size in taken] == [True] * 4


def test_its_deltas_are_those_of_the_native_code(talk: Talk, monkeypatch) -> None:
    bodies = [json.dumps({"obs": [0.1, 0.2, 0.3], "more": more}) for more in (list(range(400)), [*range(9, 400), 1.5])]
    taken: list[tuple[bytes, bytes]] = []
    decode = delta.decode
    monkeypatch.setattr(delta, "decode", lambda *given: (taken.append(given[:2]), decode(*given))[1])
    with serving() as server:
        actions(talk(server.tcp, ["start game 0", *(f"tick {body}" for body in bodies), "stop"], "--delta"))
    assert taken == [(bodies[0].encode(), delta.encode(bodies[0].encode(), bodies[1].encode()))]


def test_nobody_there(talk: Talk) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ((status, said),) = talk(probe.getsockname()[1], ["start game 0"], "--patience", "100")
    assert (status, "no server at 127.0.0.1" in said) == (0, True)


@pytest.mark.parametrize("flags", [[], ["--async"]], ids=" ".join)
def test_a_server_that_says_nothing(talk: Talk, flags: list[str]) -> None:
    with Answering(b"", closes=False) as server:
        port = int(server.address.rpartition(":")[2])
        assert talk(port, [TICKS[0]], "--timeout", "100", *flags) == [(0, "no reply in time")]


def test_a_server_of_version_1_closes_the_connection(talk: Talk) -> None:
    with Answering(b"", closes=True) as server:
        port = int(server.address.rpartition(":")[2])
        ((status, said),) = talk(port, [TICKS[0]])
    assert status == 0
    assert "version 1 only" in said or "reset" in said


WELCOME = bytes.fromhex("ff47414d434f5245 0002 00c8 00000000")


@pytest.mark.parametrize(
    "answer",
    [b"x" * 64, WELCOME[:12] + b"\xff" * 4, WELCOME + b"\xff" * 24, WELCOME + (1).to_bytes(8, "big") + b"\xff" * 16],
)
def test_a_server_that_talks_nonsense(talk: Talk, answer: bytes) -> None:
    with Answering(answer, closes=False) as server:
        port = int(server.address.rpartition(":")[2])
        ((status, said),) = talk(port, [TICKS[0]], "--timeout", "5000")
    assert (status, "the server's bytes are no" in said) == (0, True)


@pytest.fixture
def together() -> Talk:
    """Agents that act together. Only the C++ client has them."""

    def talked(port: int, lines: list[str], *flags: str) -> Replies:
        command = [str(ROOT / "build/clients/cpp/talk"), "127.0.0.1", str(port), "--agents", "game", *flags]
        ended = subprocess.run(
            command, input="\n".join(lines), capture_output=True, text=True, check=False, timeout=120
        )
        assert ended.returncode == 0, ended.stderr
        return [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in ended.stdout.splitlines()]

    return talked


def test_agents_that_act_together_get_the_actions_of_others(together: Talk) -> None:
    one, other = '{"obs": [0.1, 0.2, 0.3]}', '{"obs": [0.3, 0.2, 0.1]}'
    lines = ["start 0 1", f"tick 0 {one}\ttick 1 {other}", f"stop 1 {one}", "start 1", f"tick 1 {one}", "start 0 1"]
    with serving() as server:
        with GameClient(f"http://127.0.0.1:{server.http}", "python") as client:
            client.start()
            wanted = [client.tick([0.1, 0.2, 0.3]), client.tick([0.3, 0.2, 0.1])]
        found = together(server.tcp, lines)
        assert server.endpoint.sessions.has(("gamecore", "game-agent-1"))
    assert [status for status, _ in found] == [200] * 7
    assert [json.loads(found[place][1])["action"] for place in (1, 2, 5)] == [*wanted, wanted[0]]


def test_a_refusal_of_one_agent_is_its_reply(together: Talk) -> None:
    with serving() as server:
        found = together(server.tcp, ["start 0 1", f'tick 0 {{"obs": [1]}}\ttick 1 {TICKS[0][5:]}\tstop 2'])
    assert [status for status, _ in found] == [200, 400, 200, 404]


def test_agents_begin_anew_what_a_lost_connection_left(together: Talk) -> None:
    with serving() as server:
        assert together(server.tcp, ["start 0 1"]) == [(200, "")]
        assert together(server.tcp, ["start 1 2", f"tick 1 {TICKS[0][5:]}"])[1][0] == 200


def test_agents_wait_for_a_server_that_is_full(together: Talk) -> None:
    with serving(max_sessions=2) as server:
        other = GameClient(f"http://127.0.0.1:{server.http}", "other")
        other.start()
        ((status, _),) = together(server.tcp, ["start 0 1"], "--patience", "0")
        assert status == 429
        threading.Timer(0.3, other.stop).start()
        assert together(server.tcp, ["start 0 1"], "--patience", "20000") == [(200, "")]


@pytest.mark.parametrize("answer", [b"", b"x" * 64, WELCOME + b"\xff" * 24])
def test_agents_of_a_server_that_talks_nonsense(together: Talk, answer: bytes) -> None:
    with Answering(answer, closes=False) as server:
        port = int(server.address.rpartition(":")[2])
        found = together(port, ["start 0 1", f"tick 0 {TICKS[0][5:]}"], "--timeout", "300", "--patience", "0")
    assert [status for status, _ in found] == [0, 0]


def test_the_token_of_agents_is_in_the_greeting(together: Talk) -> None:
    with serving(token="a-secret") as server:
        assert together(server.tcp, ["start 0"], "--token", "guess") == [(401, "the token is missing or wrong")]
        assert together(server.tcp, ["start 0"], "--token", "a-secret") == [(200, "")]


def test_it_talks_to_penstock_serve(talk: Talk, tmp_path: Path) -> None:
    run = penstock.train({**SMALL, "env": "Pendulum-v1", "log_dir": str(tmp_path)}, quiet=True).run_folder
    policy = penstock.load_policy(run)
    with served(run) as server:
        found = actions(talk(server.ports["tcp"], EPISODES, "--delta"))
    wanted = [policy([0.1, value, 0.3]).tolist() for value in (0.2, 0.25, -0.125, 0.0, 0.2)]
    assert found == wanted * 2


def test_a_game_of_it_trains_a_policy(programs: Path, tmp_path: Path) -> None:
    """The two commands at the top of the example: games connect to a run, and end once it is over."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    train = [sys.executable, "-m", "penstock", "train", "--algo", "appo", "--env", "gamecore://cart_agent:CartAgent"]
    train += ["--tcp_port", str(port), "--timesteps", "2000", "--num_steps", "16", "--mini_batch_size", "32"]
    train += ["--log_dir", str(tmp_path / "logs")]
    # Once the run has answered, games need not wait for it: then nobody there means that it is over.
    play = [str(programs / "cart"), "localhost", str(port), "--games", "4", "--patience", "3"]
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen(train, cwd=ROOT / "examples/game", stdout=said, stderr=said)
    try:
        with GameClient(f"tcp://localhost:{port}", "first", patience=150.0) as first:
            first.start()
            first.stop()
        games = subprocess.run(play, stdout=subprocess.PIPE, text=True, check=False)
        run.wait()
    finally:
        run.kill()
        run.wait()
    assert (games.returncode, run.returncode) == (0, 0), (tmp_path / "said").read_text()
    episodes, steps = int(games.stdout.split()[0]), float(games.stdout.split()[2])
    assert episodes > 4
    assert episodes * steps > 1000
