"""``penstock serve`` as a process of its own, on real runs: same actions as ``penstock eval``, signals, mistakes."""

import contextlib
import http.client
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics

import penstock
from penstock.cli import main
from penstock.seeding import final_seed
from penstock.serving.server.server import Certificate
from tests.environments import BlinkEnv
from tests.serving.server.harness import Game, frame, serving, until

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {
    "hidden_sizes": (8,),
    "num_envs": 4,
    "num_steps": 32,
    "mini_batch_size": 64,
    "timesteps": 256,
    "save_interval": 1,
    "eval_episodes": 1,
}
MEMORY = {"env": "tests.environments:BlinkEnv", "model": "lstm", "memory_size": 8}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run without memory and one with."""
    logs = str(tmp_path_factory.mktemp("logs"))
    found = {"plain": {"env": "Pendulum-v1"}, "memory": MEMORY}
    return {
        kind: penstock.train({**SMALL, **settings, "log_dir": logs}, quiet=True).run_folder
        for kind, settings in found.items()
    }


class Served:
    """A ``penstock serve`` that listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving "), (line, process.communicate())
        self.line = line
        places = dict(part.split("://") for part in line.split() if "://" in part)
        self.ports = {name: int(place.rpartition(":")[2]) for name, place in places.items()}

    def get(self, path: str, **headers: str) -> tuple[int, bytes, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=120.0)
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.getheader("content-type") or ""


@contextlib.contextmanager
def served(run: Path | str, *arguments: str) -> Iterator[Served]:
    ports = ("--port", "0", "--tcp_port", "0")
    command = [sys.executable, "-m", "penstock", "serve", str(run), *ports, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield Served(process)
    finally:
        if process.poll() is None:
            process.terminate()
        _, said = process.communicate(timeout=120.0)
        assert "Traceback" not in said, said
        assert "cut off after" not in said, said


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("plain", "0"),
        # Shorter: ``test_workers.py`` answers as the server itself does.
        pytest.param("memory", "1", marks=pytest.mark.nightly),
        pytest.param("plain", "1", marks=pytest.mark.nightly),
        pytest.param("memory", "0", marks=pytest.mark.nightly),
    ],
)
def test_greedy_actions_are_those_of_penstock_eval_bit_for_bit(runs, kind: str, workers: str) -> None:
    """The same episodes, played through the server, have the same returns."""
    episodes = 3
    wanted = penstock.evaluate(runs[kind], episodes=episodes)
    returns = []
    with served(runs[kind], "--workers", workers) as server, Game(server.ports["tcp"]) as game:
        env = __import__("gymnasium").make("Pendulum-v1") if kind == "plain" else BlinkEnv()
        for number in range(episodes):
            obs, _ = env.reset(seed=final_seed(wanted.seed, number))
            game.ask("g", "start")
            total, over = 0.0, False
            while not over:
                reply = json.loads(game.ask("g", "tick", json.dumps({"obs": np.asarray(obs).tolist()}).encode()))
                action = reply["action"]
                given = np.array(action, env.action_space.dtype) if isinstance(action, list) else action
                obs, reward, terminated, truncated, _ = env.step(given)
                total += float(np.float32(reward))
                over = terminated or truncated
            game.ask("g", "stop")
            returns.append(total)
    assert float(np.mean(returns)) == wanted.mean_return
    assert float(np.std(returns)) == wanted.std_return


# Seven seconds. Shorter: ``test_end.py`` has the reply that a worker owes.
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.nightly)])
def test_sigterm_under_load_answers_what_was_accepted(runs, workers: str) -> None:
    """Every reply that is sent is whole, every client is let go, and the exit code is 0."""
    broken: list[object] = []
    let_go: list[str] = []
    answered = [0]

    def tick_on(port: int, number: int) -> None:
        with Game(port) as game:
            game.ask(f"g{number}", "start")
            with contextlib.suppress(ConnectionError):
                while True:
                    try:
                        game.ask(f"g{number}", "tick", b'{"obs": [0.1, 0.2, 0.3]}')
                        answered[0] += 1
                    except EOFError as error:
                        if error.args[0]:
                            broken.append(error.args[0])
                        break
        let_go.append("tcp")

    def ask_on(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120.0)
        # A client that asks in time is told to leave. One that asks later finds the connection closed.
        with contextlib.suppress(ConnectionError):
            while True:
                connection.request("POST", "/step", b'{"obs": [0.1, 0.2, 0.3]}')
                reply = connection.getresponse()
                if reply.status != 200 or "action" not in json.loads(reply.read()):
                    broken.append(reply.status)
                if reply.getheader("connection") == "close":
                    break
        let_go.append("http")

    with served(runs["plain"], "--workers", workers) as server:
        threads = [threading.Thread(target=tick_on, args=(server.ports["tcp"], number)) for number in range(4)]
        threads += [threading.Thread(target=ask_on, args=(server.ports["http"],)) for _ in range(2)]
        for thread in threads:
            thread.start()
        while answered[0] < 100:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(120.0)
        assert server.process.wait(120.0) == 0
    assert broken == []
    assert sorted(let_go) == ["http"] * 2 + ["tcp"] * 4


def waiting_rows(server: Served) -> float:
    page = server.get("/metrics")[1].decode()
    samples = {sample.name: sample.value for family in plain_metrics(page) for sample in family.samples}
    return samples["penstock_queue_rows"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_requests_that_wait_are_answered_after_a_signal(runs, number: signal.Signals) -> None:
    # The batch waits for the session ``idle``, which may ask: longer than the signal takes, less than --grace_seconds.
    with served(runs["plain"], "--max_wait", "4") as server, Game(server.ports["tcp"]) as game:
        assert game.ask("idle", "start") == b"{}"
        game.socket.sendall(frame("", "", b'{"obs": [0.1, 0.2, 0.3]}', time=5))
        until(lambda: waiting_rows(server) == 1)
        server.process.send_signal(number)
        _, body, moment = game.receive()
        assert "action" in json.loads(body)
        assert moment == 5
        assert game.is_closed()


def test_a_server_with_grpc_ends_without_a_word(runs) -> None:
    """gRPC keeps the event loop. What is left at the end of the process, nanobind would list."""
    with served(runs["plain"], "--grpc_port", "0") as server:
        server.process.terminate()
        assert server.process.wait(120.0) == 0
        assert server.process.stderr.read() == ""


@pytest.mark.nightly  # Seven seconds. Shorter: ``test_workers.py`` kills workers without gRPC.
def test_a_worker_that_dies_beside_grpc_is_one_line(runs) -> None:
    """gRPC says nothing of the process that is started in its place."""
    with served(runs["plain"], "--workers", "1", "--grpc_port", "0") as server:
        parent, dead = psutil.Process(server.process.pid), 0
        for when in ("at once", ""):
            until(lambda dead=dead: [one for one in parent.children() if one.pid != dead])
            (worker,) = (one for one in parent.children() if one.pid != dead)
            dead = worker.pid
            worker.kill()
            said = server.process.stderr.readline()
            assert said.startswith(f"penstock serve: worker {dead} of {runs['plain']} has died; another starts {when}")


def test_metrics_are_read_by_prometheus_own_parsers(runs) -> None:
    with served(runs["plain"]) as server:
        with Game(server.ports["tcp"]) as game:
            game.ask("g", "start")
            for _ in range(3):
                game.ask("g", "tick", b'{"obs": [0.1, 0.2, 0.3]}')
            status, page, content_type = server.get("/metrics")
            assert (status, content_type.split(";")[0]) == (200, "text/plain")
            found = {sample.name: sample for family in plain_metrics(page.decode()) for sample in family.samples}
            assert found["penstock_sessions"].value == 1
            assert found["penstock_batch_rows_sum"].value == 3
            assert found["penstock_policy_version"].labels == {"policy": "policy"}
            seconds = found["penstock_request_seconds_count"]
            assert (seconds.labels, seconds.value) == ({"protocol": "gamecore-tcp"}, 4)
        _, page, content_type = server.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert content_type.startswith("application/openmetrics-text")
        assert "penstock_requests" in {family.name for family in open_metrics(page.decode())}


def test_the_access_log_is_one_object_a_line(runs, tmp_path) -> None:
    path = tmp_path / "access.jsonl"
    with served(runs["plain"], "--access_log", str(path)) as server:
        server.get("/v2/health/live")
        with Game(server.ports["tcp"]) as game:
            game.ask("g", "start")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["protocol"], line["request"], line["status"]) for line in lines] == [
        ("inference-http", "GET /v2/health/live", 200),
        ("gamecore-tcp", "start", 200),
    ]
    assert all(line["seconds"] >= 0 and line["peer"].startswith("127.0.0.1:") for line in lines)


def test_tls(runs, certificate) -> None:
    chain, key = certificate
    ssl = __import__("ssl")
    context = ssl.create_default_context(cafile=chain)
    context.check_hostname = False
    with served(runs["plain"], "--tls_cert", chain, "--tls_key", key) as server:
        connection = http.client.HTTPSConnection("127.0.0.1", server.ports["https"], context=context, timeout=120.0)
        connection.request("POST", "/step", b'{"obs": [0.1, 0.2, 0.3]}')
        assert connection.getresponse().status == 200
        with Game(server.ports["tcps"]) as game:
            game.socket = context.wrap_socket(game.socket)
            assert game.ask("g", "start") == b"{}"
        with socket.create_connection(("127.0.0.1", server.ports["https"]), timeout=120.0) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert not plain.recv(100).startswith(b"HTTP/1.1 200")


def test_a_client_that_begins_no_tls_is_cut_off(certificate) -> None:
    files = Certificate(*map(Path, certificate))
    with (
        serving(certificate=files, max_seconds=0.3) as server,
        socket.create_connection(("127.0.0.1", server.http), timeout=120.0) as silent,
    ):
        assert silent.recv(100) == b""


def test_mistakes_are_one_line(runs, certificate, tmp_path, capfd) -> None:
    chain, key = certificate
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "no.pem").write_text("no certificate")
    run = str(runs["plain"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = [
            (["no_such_run"], 2, "there is no run no_such_run"),
            ([run, "--checkpoint", "9"], 2, "has no checkpoint 9"),
            (["no_such_run"], 2, "and no_such_run is no bundle"),
            ([f"x y={run}"], 2, "'x y' is no name of a policy: it holds letters"),
            ([run, "--port", port], 1, f"127.0.0.1:{port}: Address already in use; give another --port, or 0 for"),
            ([run, "--port", port, "--tcp_port", port], 2, f"--port and --tcp_port are both {port}"),
            (
                [run, "--port", "0", "--grpc_port", port],
                1,
                f"127.0.0.1:{port}: Address already in use; give another --grpc",
            ),
            ([run, "--host", "no.such.host.invalid", "--allow_anyone", "true"], 1, "give another --host, as 127.0.0.1"),
            (
                [run, "--host", "203.0.113.9", "--allow_anyone", "true"],
                1,
                "cannot listen on 203.0.113.9: Cannot assign requested address; give another --host, as 127.0.0.1",
            ),
            ([run, "--token_file", str(tmp_path / "none")], 2, "cannot be read: No such file"),
            ([run, "--token_file", str(tmp_path / "empty")], 2, "holds no token"),
            ([run, "--tls_cert", chain], 2, "belong together"),
            (
                [run, "--port", "0", "--tls_cert", chain, "--tls_key", str(tmp_path / "no.pem")],
                2,
                "give two files in PEM",
            ),
            ([run, "--port", "0", "--tls_cert", str(tmp_path / "none"), "--tls_key", key], 2, "is no file"),
            ([run, "--host", "0.0.0.0"], 2, "can be reached from other machines"),
            ([run, "--codec", "pickle"], 2, "--codec"),
            ([run, "--access_log", str(tmp_path / "no" / "log")], 2, "cannot be written"),
            ([f"a={run}", f"a={run}"], 2, "two policies have the name a"),
            (["a=no_such_run", f"b={run}"], 2, "there is no run no_such_run"),
            ([run, "--pad_batches", "8,65"], 2, "the size 65, which no batch needs: it holds --max_batch 64 rows at"),
            ([run, "--pad_batches", "fours"], 2, "--pad_batches takes none or powers or whole numbers from 1 to"),
            ([run, "--canary", "0.1"], 2, "give --follow as well"),
            ([run, "--follow", "--checkpoint", "1"], 2, "leave out --checkpoint 1, or give --canary"),
            ([run, "--follow", "--canary", "2"], 2, "--canary"),
            ([run, "--admin_token_file", str(tmp_path / "empty")], 2, "--admin_token_file"),
        ]
        for arguments, code, text in cases:
            assert main(["serve", *arguments]) == code, arguments
            # Also what native code prints: gRPC has a log of its own.
            said = capfd.readouterr().err
            assert text in said
            assert said.count("\n") == 1, said
            assert said.startswith("penstock: error: ")
    assert not logging.getLogger("penstock.serve").filters


@pytest.mark.nightly  # Seven seconds. Shorter: ``test_policies.py`` serves two, in this process.
def test_two_policies_have_a_name_each(runs) -> None:
    with served(f"swing={runs['plain']}", f"blink={runs['memory']}", "--workers", "1") as server:
        assert server.line.startswith("serving swing, version 2; blink, version 2, at http://")
        for name in ("swing", "blink"):
            assert json.loads(server.get(f"/v2/models/{name}")[1])["versions"] == ["2"]
        with Game(server.ports["tcp"]) as game:
            assert game.ask("s", "start") == b"{}"
            assert "action" in json.loads(game.ask("s", "tick", b'{"obs": [0.1, 0.2, 0.3]}'))
            assert game.ask("b", "start", key="policy=blink") == b"{}"
            assert "action" in json.loads(game.ask("b", "tick", b'{"obs": [1.0, 0.0]}'))


def test_a_newer_checkpoint_is_a_canary_until_it_is_promoted(runs, tmp_path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret\n")
    settings = ("--checkpoint", "1", "--follow", "--canary", "1", "--admin_token_file", str(tokens))
    with served(runs["plain"], *settings) as server:
        assert server.line.startswith("serving policy, version 1, at ")
        found: list[str] = []
        while found != ["1", "2"]:
            time.sleep(0.05)
            found = json.loads(server.get("/v2/models/policy")[1])["versions"]
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=120.0)
        connection.request("POST", "/admin/policies/policy/promote", b"", {"Authorization": "Bearer secret"})
        reply = connection.getresponse()
        assert (reply.status, json.loads(reply.read())["name"]) == (200, "policy")
        assert 'penstock_policy_version{policy="policy"} 2.0' in server.get("/metrics")[1].decode()


def test_a_bundle_that_is_exported_again_takes_over(runs, tmp_path) -> None:
    folder = penstock.export(runs["plain"], tmp_path / "policy", checkpoint="1", observations=16)
    with served(folder, "--follow") as server:
        assert server.line.startswith("serving policy, version 1, at ")
        penstock.export(runs["plain"], folder, checkpoint="2", observations=16)
        while json.loads(server.get("/v2/models/policy")[1])["versions"] != ["2"]:
            time.sleep(0.05)


def test_nothing_of_torch_is_imported(runs) -> None:
    with served(runs["plain"]) as server:
        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
        assert "libtorch" not in maps
