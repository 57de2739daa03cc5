"""Soak of a cluster: three hosts in network namespaces, with a fault every 20 seconds. Memory must stay flat.

    python -m benchmarks.soak.cluster                  # make soak: 30 minutes; needs penstock[ray], root and iproute2
    python -m benchmarks.soak.cluster --minutes 5      # to see that it runs: slopes are too short to judge

A real ``penstock train --distributed True`` of PPO on Pendulum-v1 that would never end by itself. The faults, in turn:

1. An environment process of a random host is ended by SIGKILL.
2. The second host's link is cut for five seconds.
3. The same as 1.
4. All processes of the third host are ended by SIGKILL, and Ray is started there again.

At the end comes SIGINT. `benchmarks.soak.cluster_seen` says what is watched, and what must hold.
"""

import argparse
import itertools
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.arguments import positive_float
from benchmarks.hosts import BIN, Hosts
from benchmarks.record import ROOT, command_of, destination, write
from benchmarks.runs import flags
from benchmarks.soak.cluster_seen import STORES, Watched, bars_of, called, long_lives, short_lives
from benchmarks.soak.log import Follower, reports_of
from benchmarks.soak.measures import Life, Sample
from benchmarks.soak.processes import Held, Process, held
from benchmarks.soak.remains import remains, shared_files, store_bytes

SETTING = {
    "env": "Pendulum-v1",
    "num_envs": 12,
    "num_workers": 6,
    "num_steps": 256,
    # The run ends only when it is told to.
    "timesteps": 1_000_000_000_000,
    "save_interval": 50,
    "runtime": "ray",
}
RESOURCES = ({"CPU": 2}, {"CPU": 4}, {"CPU": 2})
"""The second host has most cores, so the deputy is there."""
EVERY_S = 20.0
CUT_S = 5.0
SAMPLE_S = 2.0
START_LIMIT_S = 120.0
STALL_LIMIT_S = 90.0
END_LIMIT_S = 60.0
FULL_MINUTES = 30.0


class BrokenError(Exception):
    """The run did something after which the soak cannot go on."""


class Soak:
    """One sitting.

    Args:
        hosts: with Ray.
        folder: for the run folder.
        seed: of the faults.
    """

    def __init__(self, hosts: Hosts, folder: Path, seed: int) -> None:
        self._hosts = hosts
        self._folder = folder
        self._random = random.Random(seed)
        self._metrics: Follower | None = None
        self._reported = math.inf
        self._shared = shared_files()
        self.watched = Watched()

    def go_on(self, seconds: float) -> None:
        """Train for so long, with faults.

        Raises:
            BrokenError: the run ended, or reported nothing for too long.
        """
        words = [*flags(SETTING), "--address", self._hosts.address, "--log_dir", str(self._folder / "logs")]
        launcher = self._hosts.all[0].popen([str(BIN / "penstock"), "train", *words])
        try:
            self._begin(launcher)
            end = time.monotonic() + seconds
            for kind in itertools.cycle((self._kill, self._cut, self._kill, self._lose)):
                self._watch(launcher, min(end, time.monotonic() + EVERY_S))
                self._look_into_stores()
                if time.monotonic() >= end:
                    break
                self.watched.faults.append(kind())
            self._end(launcher)
        finally:
            launcher.kill()

    def _begin(self, launcher: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + START_LIMIT_S
        while not (found := list((self._folder / "logs").glob("[!.]*/metrics.jsonl"))):
            if time.monotonic() > until or launcher.poll() is not None:
                raise BrokenError("the run does not begin")
            time.sleep(0.2)
        self._metrics, self._reported = Follower(found[0]), time.monotonic()

    def _watch(self, launcher: "subprocess.Popen[bytes]", until: float) -> None:
        """Sample and read until a time of the clock."""
        while time.monotonic() < until:
            now = time.monotonic()
            if launcher.poll() is not None:
                raise BrokenError(f"the run ended with {launcher.returncode}")
            self._read(now)
            if now - self._reported > STALL_LIMIT_S:
                raise BrokenError(f"the run reported nothing for {STALL_LIMIT_S:.0f} s")
            for process in self._processes():
                if (found := held(process)) is not None:
                    self.watched.samples.setdefault(process, []).append(Sample(now, None, found))
            time.sleep(SAMPLE_S)

    def _read(self, now: float) -> None:
        lines = self._metrics.poll() if self._metrics is not None else []
        reports, watched = reports_of(lines, now), self.watched
        if reports:
            self._reported, watched.updates = now, reports[-1].update
        watched.unbalanced += sum(bool(report.unbalanced) for report in reports)
        watched.restarts += sum("death/status" in line for line in lines)

    def _look_into_stores(self) -> None:
        """Call this where no fault is under way: while a link is cut, Ray does not answer."""
        used = store_bytes(self._hosts)
        if used is not None:
            sample = Sample(time.monotonic(), None, Held(used / 2**20, 0.0, 0, 0))
            self.watched.samples.setdefault(STORES, []).append(sample)

    def _processes(self) -> Iterator[Process]:
        for host in self._hosts.all:
            for process in host.processes():
                try:
                    name, started = called(process), int(process.create_time() * 100)
                except psutil.NoSuchProcess:
                    continue
                if name is not None:
                    yield Process(process.pid, started, f"{name} on {host.name}")

    def _kill(self) -> str:
        """End an environment process of a random host."""
        found = [(host, one) for host in self._hosts.all for one in host.processes() if one.name().startswith("env.")]
        if not found:
            raise BrokenError("there are no environment processes")
        host, process = self._random.choice(found)
        name = process.name()
        process.kill()
        return f"{name} on {host.name} was killed"

    def _cut(self) -> str:
        """Cut a link for a while."""
        host = self._hosts.all[1]
        host.cut(off=True)
        time.sleep(CUT_S)
        host.cut(off=False)
        return f"the link of {host.name} was cut for {CUT_S:.0f} s"

    def _lose(self) -> str:
        """Lose a host, and have it join again."""
        host = self._hosts.all[2]
        host.end()
        host.begin()
        return f"{host.name} was lost, and joined again"

    def _end(self, launcher: "subprocess.Popen[bytes]") -> None:
        """Interrupt the run, and look what is left of it."""
        launcher.send_signal(signal.SIGINT)
        try:
            self.watched.status = launcher.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise BrokenError(f"the run did not end within {END_LIMIT_S:.0f} s of SIGINT") from None
        self.watched.left = remains(self._hosts, self._shared)


def _lines(found: list[Life]) -> list[dict[str, object]]:
    ordered = sorted(found, key=lambda life: life.process.name)
    return [
        {
            "process": life.process.name,
            "minutes": round(life.minutes, 1),
            "mb_a_minute": round(life.mb_a_minute, 3),
            "mb": round(life.own_mb, 1),
            "shared_mb": round(life.shared_mb, 1),
        }
        for life in ordered
    ]


def main() -> int:
    """Soak for as long as asked."""
    parser = argparse.ArgumentParser("python -m benchmarks.soak.cluster", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=positive_float, default=FULL_MINUTES)
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    place = ROOT / "build/benchmarks/soak_cluster.json"
    parser.add_argument("--write", type=destination, default=place, metavar="FILE")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    broken = ""
    with Hosts(RESOURCES, folder) as hosts:
        soak = Soak(hosts, folder, args.seed)
        try:
            soak.go_on(60.0 * args.minutes)
        except BrokenError as error:
            broken = f"broken off: {error}; what was written is in {folder}"
    watched, found = soak.watched, long_lives(soak.watched, args.minutes)
    bars = bars_of(watched, args.minutes)
    print("\n".join(json.dumps(line) for line in _lines(found)))
    print(f"{watched.updates} updates, {watched.restarts} restarts told, {len(watched.faults)} faults")
    for bar in bars:
        print(f"{bar.name}: too short to judge" if math.isnan(bar.value) else bar.line(), flush=True)
    if broken:
        print(broken)
    result = {
        "command": command_of(parser.prog),
        "bars": [bar.entry() for bar in bars],
        "processes": _lines(found),
        "short_lives": _lines(short_lives(watched)),
        "faults": watched.faults,
        "updates": watched.updates,
        "restarts": watched.restarts,
        "broken": broken,
    }
    write(args.write, result)
    return int(bool(broken) or any(not (bar.holds or math.isnan(bar.value)) for bar in bars))


if __name__ == "__main__":
    sys.exit(main())
