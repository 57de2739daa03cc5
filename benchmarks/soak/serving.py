"""Soak of ``penstock serve``: twenty minutes of visits at half of the load that the server bears, and no growth.

    python -m benchmarks.soak.serving                  # 20 minutes; a part of make soak
    python -m benchmarks.soak.serving --minutes 1      # to see that it runs: the slope is too short to judge

1. A server of a policy with an LSTM and two worker processes gets the visits of ``traffic.py`` as fast as it answers.
2. Half of that rate goes on for the minutes. Memory, descriptors and threads of the server and its workers are sampled.
3. At the end nobody is there: sessions, connections and the queue are empty, and SIGTERM ends everything with 0.

The first quarter is a warm-up. Ends with 1 if a bar is missed. Runs on Linux only.
"""

import argparse
import asyncio
import contextlib
import math
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

import penstock
from benchmarks.arguments import positive_float
from benchmarks.bars import Bar
from benchmarks.record import ROOT, command_of, destination, write
from benchmarks.soak.measures import Sample, lives, varied
from benchmarks.soak.processes import Process, held
from benchmarks.soak.traffic import HOST, Traffic

CLIENTS = 16
WORKERS = 2
FULL_MINUTES = 20.0
FULL_LOAD_S = 10.0
IDLE_SECONDS = 2.0
"""Sessions whose clients vanished end after so long."""
SAMPLE_S = 1.0
MB_A_MINUTE = 0.05
"""One megabyte in twenty minutes."""
GONE = ("penstock_sessions{", "penstock_connections ", "penstock_queue_rows{")


class Watched(NamedTuple):
    """What was seen."""

    requests: int
    seconds: float
    samples: dict[Process, list[Sample]]
    left: float
    """Sessions, connections and rows that the server still counted at the end."""
    status: int
    """Exit code of the server."""


def main() -> int:
    """Soak for as long as asked."""
    parser = argparse.ArgumentParser("python -m benchmarks.soak.serving", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=positive_float, default=FULL_MINUTES)
    place = ROOT / "build/benchmarks/soak_serving.json"
    parser.add_argument("--write", type=destination, default=place, metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        watched = soak(Path(folder), args.minutes)
    bars = bars_of(watched, args.minutes)
    for bar in bars:
        print(bar.line() if math.isfinite(bar.value) else f"{bar.name}: too short to judge", flush=True)
    command, rate = command_of(parser.prog), round(watched.requests / watched.seconds)
    write(args.write, {"command": command, "bars": [bar.entry() for bar in bars], "requests_a_second": rate})
    return int(any(not bar.holds for bar in bars if math.isfinite(bar.value) or args.minutes >= FULL_MINUTES))


def soak(folder: Path, minutes: float) -> Watched:
    """A whole sitting."""
    with _serving(folder) as (process, http, tcp):
        traffic = Traffic(http, tcp, "policy")
        asyncio.run(traffic.go_on(min(FULL_LOAD_S, 15 * minutes), CLIENTS))
        rate = traffic.requests / min(FULL_LOAD_S, 15 * minutes) / 2
        print(f"half load: {rate:,.0f} requests/s", flush=True)
        before, begun = traffic.requests, time.monotonic()
        samples = asyncio.run(_watch(traffic, process.pid, 60 * minutes, rate))
        done, seconds = traffic.requests - before, time.monotonic() - begun
        time.sleep(2 * IDLE_SECONDS)
        with urllib.request.urlopen(f"http://{HOST}:{http}/metrics") as page:
            left = left_in(page.read().decode())
        process.send_signal(signal.SIGTERM)
        return Watched(done, seconds, samples, left, process.wait(60.0))


def bars_of(watched: Watched, minutes: float) -> list[Bar]:
    """What must hold. A slope is NaN where its process was not watched for long enough."""
    found = lives(watched.samples, warm_up_s=15 * minutes, at_least=max(1.0, 0.7 * minutes))
    slopes = [life.mb_a_minute for life in found]
    looks = list(watched.samples.values())
    files = max(varied((one.part, one.held.files) for one in each) for each in looks)
    threads = max(varied((one.part, one.held.threads) for one in each) for each in looks)
    return [
        Bar("memory: MB a minute", max(slopes, default=math.nan), MB_A_MINUTE, at_most=True),
        # Each client has one connection, or none.
        Bar("descriptors more", files, CLIENTS, at_most=True),
        Bar("threads more", threads, 0, at_most=True),
        Bar("processes that were replaced", len(looks) - 1 - WORKERS, 0, at_most=True),
        Bar("sessions, connections and rows that were left", watched.left, 0, at_most=True),
        Bar("exit code", watched.status, 0, at_most=True),
    ]


async def _watch(traffic: Traffic, pid: int, seconds: float, rate: float) -> dict[Process, list[Sample]]:
    """Let visits go on, and sample the server and its workers meanwhile. The parts are quarters of the time."""
    samples: dict[Process, list[Sample]] = {}
    begun = time.monotonic()
    going = asyncio.ensure_future(traffic.go_on(seconds, CLIENTS, rate))
    while not going.done():
        for process in _processes(pid):
            found = held(process)
            at = time.monotonic()
            part = int(4 * (at - begun) / seconds)
            if found is not None:
                samples.setdefault(process, []).append(Sample(at, part if 0 < part < 4 else None, found))
        await asyncio.wait({going}, timeout=SAMPLE_S)
    await going
    return samples


def _processes(pid: int) -> Iterator[Process]:
    """The server and its workers."""
    server = psutil.Process(pid)
    for one in (server, *server.children()):
        with contextlib.suppress(psutil.NoSuchProcess):
            yield Process(one.pid, int(one.create_time() * 100), "server" if one.pid == pid else "worker")


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", int, int]]:
    """A server of a policy with a memory; yields its ports for HTTP and TCP."""
    settings = {"env": "Pendulum-v1", "model": "lstm", "timesteps": 2048, "eval_episodes": 1, "log_dir": str(folder)}
    run = penstock.train(settings, quiet=True).run_folder
    command = [sys.executable, "-m", "penstock", "serve", str(run), "--port", "0", "--tcp_port", "0"]
    limits = ["--workers", str(WORKERS), "--idle_seconds", str(IDLE_SECONDS), "--max_sessions", "100000"]
    quiet = (folder / "said.txt").open("w")
    with quiet, subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, stderr=quiet, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            http, tcp = (int(port) for port in re.findall(r":(\d+)", line)[:2])
            yield process, http, tcp
        finally:
            process.kill()


def left_in(page: str) -> float:
    """Sessions, connections and rows by a server's page of metrics, less the connection that has read this page."""
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(GONE)) - 1.0


if __name__ == "__main__":
    sys.exit(main())
