"""Checks that this machine has the memory, the disk and the open files for a program, before anything starts.

Counts the least that a run needs: nobody knows beforehand what environments and libraries take.
"""

import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from penstock.errors import ResourceError
from penstock.memory.snapshots import Snapshots
from penstock.program.graph import ActionLog, Program, Stream, Table
from penstock.saved_runs.pasts import SNAPSHOTS
from penstock.types import ArraySpec
from penstock.wiring.edges import Wiring

__all__ = ["available_memory", "check_machine", "shared_memory", "table_memory"]

PROCESS_BYTES = 8 << 20
"""Least memory of a worker process. Measured: 12 to 20 MiB, with its part of the memory that all share."""
PROCESS_FILES = 1
"""Descriptors that the launcher holds for each process while it runs."""
OWN_FILES = 24
"""Descriptors that the launcher holds besides."""


class _Cgroup(NamedTuple):
    """Where Linux tells the memory of this process's container."""

    folder: Path
    limit: str
    """File with the limit, in bytes."""
    used: str
    """File with the bytes that all processes use, the system's own for them included."""
    spare: tuple[str, ...]
    """Lines of ``memory.stat``: pages and names of files. The system takes them back before it refuses memory."""


_CGROUPS = (
    _Cgroup(
        Path("/sys/fs/cgroup"), "memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable")
    ),
    _Cgroup(
        Path("/sys/fs/cgroup/memory"),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)
"""Version 2 and version 1."""


def shared_memory(program: Program) -> int:
    """Bytes of the segment that holds all edges, without the pages that may never be touched."""
    nbytes = Wiring(program.edges, [(node.name, node.group) for node in program.nodes]).nbytes
    return nbytes - _untouched(program)


def table_memory(program: Program, *, alone: bool) -> int:
    """Bytes of the replay table on this machine, without the pages that may never be touched.

    Args:
        program: if it has no table, or this is a file, they are 0.
        alone: all shards lie on this machine. Otherwise each learner may have a machine.
    """
    tables = (edge for edge in program.edges if isinstance(edge, Table) and edge.file is None)
    return sum(_slot_bytes(table, _is_touched) * table.slots // (1 if alone else _machines(table)) for table in tables)


def check_machine(program: Program, processes: int) -> None:
    """Check that a program and its processes fit into this machine: its memory, disk and open files.

    Raises:
        ResourceError: they do not fit. The line says how much is needed, how much there is, and what to type.
    """
    _check_memory(program, processes)
    for edge in program.edges:
        if isinstance(edge, Table) and edge.file is not None:
            _check_disk(edge, edge.file)
    files, limit = OWN_FILES + processes * PROCESS_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit not in {resource.RLIM_INFINITY, -1} and files > limit:
        raise ResourceError(
            f"this run needs {files:,} open files, and {limit:,} are allowed; type ulimit -n {files}, or give fewer "
            "--num_workers"
        )


def _check_memory(program: Program, processes: int) -> None:
    """Check that the memory suffices.

    Raises:
        ResourceError: it does not. The line names what takes the most.
    """
    shared, free = shared_memory(program), available_memory()
    learning = [node.minibatch for node in program.nodes if node.minibatch is not None]
    own = sum(minibatch.nbytes for minibatch in learning)
    need = shared + own + processes * PROCESS_BYTES
    if free is None or need <= free:
        return
    what, advice = f"{_gib(shared)} shared by {processes:,} processes", _advice(program, need - free)
    if own > shared:
        fits = learning[0].size * max(0, own - (need - free)) // own
        what = f"{_gib(own)} for minibatches"
        advice = f"give a --mini_batch_size of at most {fits}" if fits else "a smaller --mini_batch_size needs less"
    raise ResourceError(f"this run needs at least {_gib(need)} of memory ({what}), and {_gib(free)} are free; {advice}")


def _untouched(program: Program) -> int:
    """Bytes of the segment that this machine may never write. Pages that are never written cost no memory.

    - Each row of a table has room for the last observation of a truncated episode. To count this room would double the
      memory of images.
    - If the shards of a table lie with their learners, this machine writes only one of them.
    - Each lane has room for snapshots. Only lanes with long episodes use it.
    """
    tables = [edge for edge in program.edges if isinstance(edge, Table) and edge.file is None]
    finals = sum(_slot_bytes(table, lambda spec: not _is_touched(spec)) * table.slots for table in tables)
    whole = sum(_slot_bytes(table, _is_touched) * table.slots for table in tables)
    logs = (edge for edge in program.edges if isinstance(edge, ActionLog) and edge.snapshot_bytes)
    kept = sum(Snapshots.required(log.lanes, log.snapshot_bytes) for log in logs)
    streams = (edge for edge in program.edges if isinstance(edge, Stream))
    handed_on = sum(spec.nbytes * edge.slots for edge in streams for spec in edge.arrays if spec.name == SNAPSHOTS)
    return finals + whole - table_memory(program, alone=False) + kept + handed_on


def _slot_bytes(table: Table, counts: Callable[[ArraySpec], bool]) -> int:
    """Bytes of the counted arrays in one slot of every writer together."""
    return sum(spec.nbytes for spec in table.arrays if counts(spec)) * len(table.writers)


def _machines(table: Table) -> int:
    """On how many machines the rows of a table lie, if each learner has a machine."""
    return table.shards if table.resident else 1


def _is_touched(spec: ArraySpec) -> bool:
    return not spec.name.startswith("final.")


def _advice(program: Program, missing: int) -> str:
    """What to type so that a run needs ``missing`` bytes less."""
    for edge in program.edges:
        if isinstance(edge, Table) and edge.file is None and (fits := _fitting(edge, missing, _is_touched)):
            return f"a replay table of --capacity {fits} rows fits"
    return "a smaller --num_envs needs less, so does a smaller --num_workers or --num_steps"


def _fitting(table: Table, missing: int, counts: Callable[[ArraySpec], bool]) -> int:
    """How many rows a table may keep so that the counted arrays take ``missing`` bytes less here; 0 if none."""
    fewer = -(-missing * _machines(table) // _slot_bytes(table, counts))
    return max(0, table.slots - 1 - fewer) * table.rings.turn_rows


def _check_disk(table: Table, file: Path) -> None:
    """Check that the disk has space for a table's file. Space that the file has reserved already counts as free.

    Raises:
        ResourceError: it has not.
    """
    with contextlib.suppress(OSError):
        reserved = file.stat().st_blocks * 512 if file.exists() else 0
        need, free = table.rings.file_bytes, _free_on_disk(file) + reserved
        if need > free:
            fits = _fitting(table, need - free, lambda _: True)
            less = f"--capacity {fits} rows fit" if fits else "a smaller --capacity needs less"
            raise ResourceError(
                f"the replay table of this run needs a file of {_gib(need)}, and {_gib(free)} are free in "
                f"{file.parent.parent}; {less}, or give another --log_dir"
            )


def _free_on_disk(file: Path) -> int:
    """Bytes that this user may still write to the disk of that file."""
    there = next(folder for folder in file.absolute().parents if folder.exists())
    found = os.statvfs(there)
    return found.f_bavail * found.f_frsize


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of memory that this process can still take, within the limit of its container; ``None`` if unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        found.append(int(lines.get("MemAvailable", "").split()[0]) * 1024)
    for cgroup in _CGROUPS:
        # "max" where there is no limit.
        with contextlib.suppress(OSError, ValueError):
            found.append(max(0, int((cgroup.folder / cgroup.limit).read_text()) - _taken(cgroup)))
    return min(found, default=None)


def _taken(cgroup: _Cgroup) -> int:
    """Bytes that a container uses and cannot give back; 0 if the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        used = int((cgroup.folder / cgroup.used).read_text())
        stat = dict(line.split() for line in (cgroup.folder / "memory.stat").read_text().splitlines())
        return max(0, used - sum(int(stat.get(name, 0)) for name in cgroup.spare))
    return 0


def _gib(count: int) -> str:
    return f"{count / (1 << 30):,.1f} GiB"
