"""Hosts of a Ray cluster, imitated on this machine: each is a network namespace with an address and a Ray of its own.

Needs Linux, root and iproute2 (`ip`). The hosts share cores, memory and disk; only their links are their own. Processes
are ended by their ids.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

import psutil

from benchmarks.far_link import Far, set_carrier, switch, tap

NETWORK = "10.219.0"
PORT = 6379
BIN = Path(sys.executable).parent
STORE_BYTES = 200_000_000
BURST_BYTES, QUEUE_BYTES = 5_000, 2_000_000
"""Of a limited link: what may pass at once after a pause, and what waits for its turn. More than that is lost."""
FORK_LIMIT_S, JOIN_LIMIT_S = 10.0, 180.0
END_S = 2.0
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # All of them are on this machine.
    "RAY_AUTH_MODE": "disabled",
    # Ray starts a worker for each core before anybody asks for one. Nearly none of them is ever used here.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # By default Ray's workers have nice 15. On the cores that all hosts share here, processes of the launcher's host
    # would go before those of all others, which no host with cores of its own does.
    "RAY_worker_niceness": "0",
}


class Traffic(NamedTuple):
    """Bytes that have gone over the link of a host."""

    received: int
    sent: int


class Host:
    """One host. Host 0 is Ray's head.

    Args:
        number: of the host.
        resources: under Ray's names; ``CPU`` is its number of cores.
        log: for what Ray prints.
    """

    def __init__(self, number: int, resources: Mapping[str, float], log: IO[bytes]) -> None:
        self.name = f"penstock-{number}"
        self.address = f"{NETWORK}.{number + 1}"
        self._number = number
        self._resources = dict(resources)
        self._log = log
        self._names = Path("/etc/netns") / self.name / "resolv.conf"
        """Empty: no name server is reached from here, and torch asks one for the name of each address for 6 s."""
        self.device: int | None = None
        """The outer end of its link, if hosts are far apart."""

    def link(self, *, far: bool) -> None:
        """Make the namespace, and join it to all hosts: by a bridge, or by a device that `far_link` waits for."""
        outside = f"{BRIDGE}{self._number}"
        self._names.parent.mkdir(parents=True, exist_ok=True)
        self._names.touch()
        _ip("netns", "add", self.name)
        if far:
            self.device = tap(outside)
            _ip("link", "set", outside, "netns", self.name, "name", "eth0")
        else:
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", self.name)
            _ip("link", "set", outside, "master", BRIDGE, "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self.name, "link", "set", device, "up")
        # A program asks for its way to the world to find its own address.
        _ip("-n", self.name, "route", "add", "default", "dev", "eth0")

    def begin(self) -> None:
        """Start Ray."""
        head = ["--head", "--port", str(PORT), "--include-dashboard", "false"]
        role = ["--address", f"{NETWORK}.1:{PORT}"] if self._number else head
        more = {name: amount for name, amount in self._resources.items() if name not in {"CPU", "GPU"}}
        words = ["--node-ip-address", self.address, "--num-cpus", f"{self._resources.get('CPU', 0):.0f}"]
        words += ["--num-gpus", f"{self._resources.get('GPU', 0):.0f}", "--resources", json.dumps(more)]
        words += ["--object-store-memory", str(STORE_BYTES), "--block"]
        self.ray = self.popen([str(BIN / "ray"), "start", *role, *words])

    def popen(self, words: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start a command on this host."""
        return subprocess.Popen(
            [*self._way_in(), *words],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT},
            # SIGINT gets its default action: a shell may let its background jobs ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no other thread is there
        )

    def output(self, words: Sequence[str], limit_s: float) -> str:
        """Run a short command on this host. Returns what it prints.

        Raises:
            subprocess.SubprocessError: it fails, or takes longer.
        """
        return subprocess.run(
            [*self._way_in(), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **ENVIRONMENT},
            timeout=limit_s,
            check=True,
            text=True,
        ).stdout

    def _way_in(self) -> list[str]:
        """The words that run a command on this host, before the command."""
        return ["ip", "netns", "exec", self.name]

    def runs_ray(self) -> bool:
        """Whether Ray's own processes run on this host."""
        return any("RuntimeEnvAgent" in " ".join(_command(process)) for process in self.processes())

    def processes(self) -> list[psutil.Process]:
        """All processes on this host."""
        found = []
        for pid in _ip("netns", "pids", self.name).split():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return found

    def groups(self) -> set[str]:
        """The names of all processes on this host. One of a run that was forked has its placement group as its name."""
        found = set()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.add(process.name())
        return found

    def end(self) -> None:
        """End all processes on this host at once, as if its power were cut."""
        until = time.monotonic() + END_S
        while (left := self.processes()) and time.monotonic() < until:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(0.05)

    def remove(self) -> None:
        """End its processes, and remove link and namespace."""
        self.end()
        if self.device is not None:
            os.close(self.device)
        else:
            # By itself a link goes only some time after its namespace.
            _ip("link", "del", f"{BRIDGE}{self._number}")
        _ip("netns", "del", self.name)
        shutil.rmtree(self._names.parent)

    def cut(self, *, off: bool) -> None:
        """Cut the link, or join it again."""
        if self.device is not None:
            set_carrier(self.device, on=not off)
        else:
            _ip("link", "set", f"{BRIDGE}{self._number}", "down" if off else "up")

    def limit(self, bytes_s: float) -> None:
        """Let no more bytes a second, frames with their headers, over its link in each direction. Not if it is far."""
        shape = ["root", "tbf", "rate", f"{8 * bytes_s:.0f}bit"]
        shape += ["burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES)]
        for namespace, device in (([], f"{BRIDGE}{self._number}"), (["-n", self.name], "eth0")):
            subprocess.run(["tc", *namespace, "qdisc", "replace", "dev", device, *shape], check=True)

    def traffic(self) -> Traffic:
        """Bytes over its link since it was made."""
        (found,) = json.loads(_ip("-n", self.name, "-s", "-j", "link", "show", "eth0"))
        return Traffic(found["stats64"]["rx"]["bytes"], found["stats64"]["tx"]["bytes"])


class SeparateHost(Host):
    """A host whose processes see no process of another host. Needs `unshare` and `nsenter` (util-linux), too.

    A program that joins Ray is taken for one of the head's machine if it sees the processes of the head. So only on
    separate hosts a launcher may be elsewhere, and a deputy may resume a run.
    """

    _first: int | None = None
    """The process that all others of this host see as the first one. When it ends, they end."""

    def begin(self) -> None:
        """Start Ray, in a new namespace of processes.

        Raises:
            TimeoutError: the namespace is not made.
        """
        self._first = None
        super().begin()
        until = time.monotonic() + FORK_LIMIT_S
        while not (found := _children(self.ray.pid)):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name} gets no namespace of processes; the log of its hosts says why")
            time.sleep(0.01)
        self._first = found[0].pid

    def _way_in(self) -> list[str]:
        if self._first is None:
            return [*super()._way_in(), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        # Without `--wd` a command would begin in the root folder.
        return ["nsenter", "--target", str(self._first), "--net", "--pid", "--mount", "--wd"]


class Hosts:
    """Several hosts with one Ray cluster, for a ``with`` block.

    Args:
        resources: of each host, the head first.
        folder: for what Ray prints.
        far: how far apart they are; ``None``: as near as this machine can.
        kind: of all hosts.

    Raises:
        RuntimeError: the hosts of another sitting are there; the text says how to remove those of a killed one.
    """

    address = f"{NETWORK}.1:{PORT}"

    def __init__(
        self,
        resources: Sequence[Mapping[str, float]],
        folder: Path,
        far: Far | None = None,
        kind: type[Host] = Host,
    ) -> None:
        self._far = far
        self._switch: subprocess.Popen[bytes] | None = None
        self._log = (folder / "hosts.txt").open("ab")
        self.all = [kind(number, own, self._log) for number, own in enumerate(resources)]

    def __enter__(self) -> Self:
        if (DEVICES / BRIDGE).exists():
            # Perhaps another sitting runs, so its hosts are left alone.
            self._log.close()
            raise RuntimeError(f"{BRIDGE} is there: another sitting runs. If it was killed: {REMOVE}")
        _ip("link", "add", BRIDGE, "type", "bridge")
        try:
            _ip("link", "set", BRIDGE, "up")
            for host in self.all:
                host.link(far=self._far is not None)
            if self._far is not None:
                self._switch = switch([host.device for host in self.all if host.device is not None], self._far)
            for host in self.all:
                host.begin()
                # A host that finds no head gives up.
                self.wait_for(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for host in reversed(self.all):
            with contextlib.suppress(subprocess.CalledProcessError):
                host.remove()
        if self._switch is not None:
            self._switch.kill()
            self._switch.wait()
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", BRIDGE)
        self._forget_head()
        self._log.close()

    def _forget_head(self) -> None:
        """Remove the note by which Ray finds a cluster of this machine: a head that was ended by SIGKILL leaves it."""
        with contextlib.suppress(FileNotFoundError):
            if NOTE_OF_HEAD.read_text(encoding="utf-8").strip() == self.address:
                NOTE_OF_HEAD.unlink()

    def wait_for(self, host: Host) -> None:
        """Wait until Ray's own processes run on a host.

        Raises:
            TimeoutError: they do not start.
        """
        until = time.monotonic() + JOIN_LIMIT_S
        while not host.runs_ray():
            if time.monotonic() > until or host.ray.poll() is not None:
                raise TimeoutError(f"Ray does not start on {host.name}; {self._log.name} has what it said")
            time.sleep(0.2)

    def named(self, text: str) -> Iterator[tuple[Host, psutil.Process]]:
        """The processes on all hosts whose command has this text."""
        for host in self.all:
            for process in host.processes():
                if text in " ".join(_command(process)):
                    yield host, process


DEVICES = Path("/sys/class/net")
NOTE_OF_HEAD = Path("/tmp/ray/ray_current_cluster")
BRIDGE = "penstockbr"
REMOVE = (
    "for host in $(ip netns list | grep -o '^penstock-[0-9]*'); "
    "do ip netns pids $host | xargs -r kill -9; ip netns del $host; done; "
    f"ip link del {BRIDGE}"
)
"""Removes what a killed sitting has left."""


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
