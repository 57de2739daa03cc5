"""Finds the processes of a run, and the memory and descriptors of each, from /proc. Runs on Linux only.

A run is marked by an environment variable, which all its processes inherit. Does not change the processes that it
watches.
"""

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

MARK = "PENSTOCK_SOAK"
"""The environment variable."""
LAUNCHER, WARDEN, TEMPLATE = "launcher", "warden", "template"
_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One process. A later process with the same number is another one."""

    pid: int
    started: int
    """Clock ticks from boot to its start."""
    name: str
    """``launcher``, ``warden``, ``template``, its placement group, or the system's name for it."""

    @property
    def age_s(self) -> float:
        """Seconds since its start."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / _TICKS


class Held(NamedTuple):
    """The memory and descriptors of a process."""

    own_mb: float
    """Resident memory without the shared part, because each process touches the run's segment little by little."""
    shared_mb: float
    files: int
    threads: int


def processes(mark: str, launcher: int, groups: Collection[str]) -> list[Process]:
    """Every living process with the mark, and the dead processes that none of them has reaped.

    Args:
        mark: the variable's value.
        launcher: the process that was started.
        groups: placement groups, which are the system's names for processes that were forked from a template.
    """
    stats = dict(_stats())
    ours = {pid for pid in stats if f"{MARK}={mark}".encode() in _read(pid, "environ").split(b"\0")}
    ours |= {pid for pid, (state, parent, _) in stats.items() if state == "Z" and parent in ours}
    found = [Process(pid, stats[pid][2], _name(pid, launcher, groups)) for pid in ours]
    # A forked process gets the name of its group only when it begins. Before, it looks like its template, the oldest.
    templates = sorted((process for process in found if process.name == TEMPLATE), key=lambda process: process.started)
    young = set(templates[1:])
    return sorted(process._replace(name="fork") if process in young else process for process in found)


def held(process: Process) -> Held | None:
    """The memory and descriptors of a process now; nothing if it has ended."""
    try:
        lines = _read(process.pid, "status").decode(errors="replace").splitlines()
        status = {key: value.split()[0] for key, _, value in (line.partition(":") for line in lines) if value.strip()}
        files = sum(1 for _ in (_PROC / str(process.pid) / "fd").iterdir())
        kb = {key: int(status[key]) for key in ("RssAnon", "RssFile", "RssShmem")}
    except (OSError, KeyError):
        return None
    own = (kb["RssAnon"] + kb["RssFile"]) / 1024
    return Held(own, kb["RssShmem"] / 1024, files, int(status["Threads"]))


def _stats() -> Iterator[tuple[int, tuple[str, int, int]]]:
    """Process id -> state, parent, start."""
    for path in _PROC.iterdir():
        if path.name.isdigit() and (stat := _read(int(path.name), "stat")):
            fields = stat.rpartition(b")")[2].split()
            yield int(path.name), (fields[0].decode(), int(fields[1]), int(fields[19]))


def _name(pid: int, launcher: int, groups: Collection[str]) -> str:
    if pid == launcher:
        return LAUNCHER
    called, command = _read(pid, "comm").decode(errors="replace").strip(), _read(pid, "cmdline")
    if called not in groups:
        for name in (WARDEN, TEMPLATE):
            if f"{name} import main".encode() in command:
                return name
    return called


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / name).read_bytes()
    return b""
