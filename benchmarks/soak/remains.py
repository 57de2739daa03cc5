"""What a run leaves on hosts in network namespaces: processes, shared memory, and objects in Ray's store.

Hosts are imitated on one machine, so all have one `/dev/shm`. Ends nothing.
"""

import math
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.bars import Bar
from benchmarks.hosts import Hosts

OURS = ("ray::Host", "ray::Deputy", "warden", "template")
"""Parts of the commands of penstock's processes on hosts."""
SETTLE_S, EMPTY_LIMIT_S = 2.0, 20.0
"""Seconds after the end of the command until processes count, and until Ray has let go of its objects."""
ASK_LIMIT_S = 20.0
_ANONYMOUS = "/memfd:penstock-"
_SHARED = Path("/dev/shm")


class Remains(NamedTuple):
    """What is left after a run."""

    processes: int
    """Of penstock."""
    holders: int
    """Processes of the hosts, Ray's own included, that still hold anonymous memory of penstock (memfd)."""
    files: int
    """New ones in ``/dev/shm``."""
    store_bytes: float
    """Of objects in Ray's stores; infinite if Ray does not say."""


def shared_files() -> set[str]:
    """The names of all files in ``/dev/shm``."""
    return {path.name for path in _SHARED.iterdir()}


def remains(hosts: Hosts, shared_before: Collection[str]) -> Remains:
    """Look what is left. Call this when the command has ended.

    Args:
        hosts: with their Ray.
        shared_before: the files in ``/dev/shm`` before the run.
    """
    time.sleep(SETTLE_S)
    left = processes_left(hosts)
    holders = sum(holds_memory(process) for host in hosts.all for process in host.processes())
    files = len(shared_files() - set(shared_before))
    until = time.monotonic() + EMPTY_LIMIT_S
    while (used := store_bytes(hosts)) != 0 and time.monotonic() < until:
        time.sleep(SETTLE_S)
    return Remains(left, holders, files, math.inf if used is None else used)


def processes_left(hosts: Hosts) -> int:
    """The number of penstock's processes on hosts."""
    return sum(1 for text in OURS for _ in hosts.named(text))


def holds_memory(process: psutil.Process) -> bool:
    """Whether a process has a file of penstock's anonymous memory open, or mapped."""
    folder = Path("/proc", str(process.pid))
    try:
        if _ANONYMOUS in (folder / "maps").read_text(encoding="utf-8"):
            return True
        return any(str(file.readlink()).startswith(_ANONYMOUS) for file in (folder / "fd").iterdir())
    except OSError:
        # It has ended meanwhile.
        return False


def store_bytes(hosts: Hosts) -> int | None:
    """Bytes of objects in the stores of all hosts; ``None`` if Ray does not answer, as while a link is cut."""
    asked = [sys.executable, "-m", "benchmarks.soak.store", hosts.address, str(ASK_LIMIT_S)]
    try:
        return int(hosts.all[0].output(asked, 2 * ASK_LIMIT_S))
    except (subprocess.SubprocessError, ValueError):
        return None


def bars_of_remains(found: Remains) -> list[Bar]:
    """Nothing may be left."""
    return [
        Bar("processes that are left", found.processes, 0, at_most=True),
        Bar("processes that still hold memory of the run", found.holders, 0, at_most=True),
        Bar("files in /dev/shm that are left", found.files, 0, at_most=True),
        Bar("bytes left in Ray's object stores", found.store_bytes, 0, at_most=True),
    ]
