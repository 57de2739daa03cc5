"""``penstock serve`` beside other servers of models: requests a second and latency, the same graph of ONNX behind each.

    python -m benchmarks.serve_peers                        # about five minutes, after each peer is installed
    python -m benchmarks.serve_peers --rounds 1 --seconds 1 # to see that it runs

A PPO policy of Pendulum-v1 (two layers of 64) is exported as a bundle. `penstock serve` takes the bundle, the peers its
graph: a plain FastAPI handler, LitServe, mosec, and Ray Serve as it is installed and in its mode for high throughput
(HAProxy). Each runs ONNX Runtime on one thread in one process, and batches up to 64 requests where it can.

1. In each round every server is started, checked (it must give the policy's actions), measured and ended, in turns.
2. One client asks again and again, then 64 do, each on a connection of its own that is kept.
3. All get the same requests of HTTP from the same load generator. It shares the machine's cores with the server, so
   the processor time of both stands beside each rate.

A figure is the median over the rounds. Bars: at least 5 times the requests a second of Ray Serve as it is installed,
and no fewer than those of each other peer. Sessions of Gamecore over TCP, which only penstock speaks, are measured too.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

import penstock
from benchmarks.arguments import positive_float, positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.peers.install import python_of, requirements_of
from benchmarks.record import ROOT, command_of, destination, write
from penstock.serving.bench.gamecore import Load, http_reply, measure
from penstock.serving.bench.load import Conversation, Measured, converse

HOST = "127.0.0.1"
MANY = 64
"""Clients at once."""
BODIES = 16
"""Different observations that a client sends in turn."""
START_S = 120.0
END_S = 20.0
WARM_UP_S = 0.5
TIMES_RAY = 5.0


class Contestant(NamedTuple):
    """A server, and what it is started with."""

    name: str
    path: str
    """Where it takes observations."""
    peer: str | None = None
    """Name of its environment, and of its script; ``None``: penstock."""
    variables: Mapping[str, str] = {}


OURS = Contestant("penstock serve", "/step")
RAY = Contestant("Ray Serve", "/infer", "ray")
CONTESTANTS = (
    OURS,
    Contestant("FastAPI handler", "/infer", "fastapi"),
    Contestant("LitServe", "/infer", "litserve"),
    Contestant("mosec", "/infer", "mosec"),
    RAY,
    RAY._replace(
        name="Ray Serve, high throughput",
        variables={"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"},
    ),
)


class Figures(NamedTuple):
    """What one server did in one round with so many clients."""

    requests_a_second: float
    p50_ms: float
    p99_ms: float
    failures: float
    server_us: float
    """Processor time of all its processes for each request."""
    client_us: float
    """Processor time of the load generator for each request."""


def main() -> int:
    """Measure, print and write. Returns 1 if a bar is missed."""
    parser = argparse.ArgumentParser("python -m benchmarks.serve_peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=positive_int, default=3, help="in which the servers take turns")
    parser.add_argument("--seconds", type=positive_float, default=3.0, help="of each measurement")
    parser.add_argument("--write", type=destination, help="file for the result")
    args = parser.parse_args()
    for peer in {one.peer for one in CONTESTANTS if one.peer is not None}:
        python_of(peer)
    found: dict[tuple[str, str], list[Figures]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as folder:
        bundle = _bundle(Path(folder))
        for number in range(args.rounds):
            for contestant in CONTESTANTS:
                for case, figures in _round(contestant, bundle, args.seconds):
                    found.setdefault((case, contestant.name), []).append(figures)
                    print(f"round {number + 1}  {case:<17} {contestant.name:<27} {_line(figures)}", flush=True)
    medians = {key: Figures(*map(statistics.median, zip(*each, strict=True))) for key, each in found.items()}
    bars = bars_of(medians)
    print("\n".join(("", *(bar.line() for bar in bars))))
    if args.write is not None:
        write(args.write, _result(command_of(parser.prog), medians, bars))
    return exit_status(bars)


def bars_of(medians: Mapping[tuple[str, str], Figures]) -> list[Bar]:
    """The rate of ours beside each peer's, with 64 clients over HTTP."""
    case = _case("http", MANY)
    ours = medians[case, OURS.name].requests_a_second
    return [
        Bar(
            f"requests/s beside {one.name}",
            ours / medians[case, one.name].requests_a_second,
            TIMES_RAY if one.name == RAY.name else 1.0,
        )
        for one in CONTESTANTS
        if one.peer is not None
    ]


def _round(contestant: Contestant, bundle: Path, seconds: float) -> Iterator[tuple[str, Figures]]:
    """Start a server, measure it and end it."""
    with _serving(contestant, bundle) as (process, http, tcp):
        url = f"http://{HOST}:{http}{contestant.path}"
        bodies = [json.dumps({"obs": obs.tolist()}).encode() for obs in _observations()]
        _check(process, url, bodies[0], bundle)
        frames = [_frame(contestant.path, body) for body in bodies]
        conversations = [Conversation(frames[0], frames, frames[0], http_reply)] * MANY
        converse(HOST, http, conversations, WARM_UP_S)
        for clients in (1, MANY):
            yield (
                _case("http", clients),
                _figures(process, lambda count=clients: converse(HOST, http, conversations[:count], seconds)),
            )
        if contestant is OURS:
            load = Load(f"http://{HOST}:{http}", "policy", MANY, seconds, tcp, "json", "")
            yield _case("gamecore tcp", MANY), _figures(process, lambda: measure(load))


@contextlib.contextmanager
def _serving(contestant: Contestant, bundle: Path) -> Iterator[tuple[psutil.Process, int, int]]:
    """A server of the bundle; yields its first process and two free ports, of which a peer takes the first."""
    http, tcp = _free_port(), _free_port()
    if contestant.peer is None:
        command = [sys.executable, "-m", "penstock", "serve", bundle, "--port", http, "--tcp_port", tcp]
    else:
        script = f"benchmarks.peers.{contestant.peer}_serve"
        command = [python_of(contestant.peer), "-m", script, bundle / "policy.onnx", http]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **contestant.variables},
            start_new_session=True,
        ) as process,
    ):
        first = psutil.Process(process.pid)
        try:
            yield first, http, tcp
        except BaseException:
            said.seek(0)
            sys.stderr.write(said.read()[-4000:].decode(errors="replace"))
            raise
        finally:
            _end(process, first)


def _end(process: "subprocess.Popen[bytes]", first: psutil.Process) -> None:
    """Ask a server to end, and kill what is left of it. Some peers start processes in groups of their own."""
    members = [first, *first.children(recursive=True)] if process.poll() is None else []
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()


def _check(process: psutil.Process, url: str, body: bytes, bundle: Path) -> None:
    """Wait until the server answers, and check that its answer is the policy's.

    Raises:
        RuntimeError: it ended or did not answer, or it answers otherwise.
    """
    wanted = np.ravel(penstock.load_policy(bundle)(_observations()[0]))
    until = time.monotonic() + START_S
    while True:
        try:
            request = urllib.request.Request(url, body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=10.0) as reply:
                found = np.ravel(json.loads(reply.read())["action"])
            break
        except OSError as error:
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE or time.monotonic() > until:
                raise RuntimeError(f"no answer at {url}: {error}") from None
            time.sleep(0.1)
    if not np.allclose(found, wanted, atol=1e-5):
        raise RuntimeError(f"{url} answers {found}, wanted {wanted}")


def _figures(process: psutil.Process, load: Callable[[], Measured]) -> Figures:
    """The figures of one load."""
    before, own = _processor_seconds(process), time.process_time()
    found = load()
    own, used = time.process_time() - own, _processor_seconds(process) - before
    each = 1e6 / max(1, found.ticks)
    p50, p99 = (1000 * found.percentile(share) for share in (50, 99))
    return Figures(found.rate, p50, p99, found.failures, used * each, own * each)


def _processor_seconds(process: psutil.Process) -> float:
    """Processor time of a process and all below it so far."""
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            total += times.user + times.system
    return total


def _bundle(folder: Path) -> Path:
    """A bundle of a policy that has hardly trained: its parameters do not change the time."""
    settings = {"env": "Pendulum-v1", "timesteps": 2048, "eval_episodes": 1, "log_dir": str(folder)}
    run = penstock.train(settings, quiet=True).run_folder
    return penstock.export(run, folder / "policy", observations=16)


def _observations() -> np.ndarray:
    return np.random.default_rng(0).random((BODIES, 3)).astype(np.float32)


def _frame(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def _case(over: str, clients: int) -> str:
    return f"{over}, {clients} client{'s' * (clients > 1)}"


def _line(figures: Figures) -> str:
    failed = f", {figures.failures:.0f} failures" * bool(figures.failures)
    return (
        f"{figures.requests_a_second:8,.0f} requests/s  p50 {figures.p50_ms:6.2f} ms  p99 {figures.p99_ms:6.2f} ms  "
        f"{figures.server_us:5.0f} us of the server and {figures.client_us:3.0f} us of the load each{failed}"
    )


def _result(command: str, medians: Mapping[tuple[str, str], Figures], bars: list[Bar]) -> dict[str, Any]:
    """The result as it is committed. A ratio is the rate of ours, divided by a peer's."""
    many = _case("http", MANY)
    rates = {name: figures.requests_a_second for (case, name), figures in medians.items() if case == many}
    ours = rates.pop(OURS.name)
    return {
        "command": command,
        "ratios": {many: {name: round(ours / rate, 2) for name, rate in rates.items()}},
        "bars": [bar.entry() for bar in bars],
        "versions": versions(),
        "rows": [
            {"case": case, "what": name, **{field: round(value, 3) for field, value in figures._asdict().items()}}
            for (case, name), figures in sorted(medians.items(), key=_by_case)
        ],
    }


def _by_case(found: tuple[tuple[str, str], Figures]) -> str:
    return found[0][0]


def versions() -> dict[str, list[str]]:
    """What stands in the environment of each peer."""
    peers = sorted({one.peer for one in CONTESTANTS if one.peer is not None})
    return {
        peer: [line for line in requirements_of(peer).read_text().splitlines() if not line.startswith("#")]
        for peer in peers
    }


if __name__ == "__main__":
    raise SystemExit(main())
