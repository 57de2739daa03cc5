"""Whether a program fits into this machine: its memory and its open files, asked before anything starts.

What environments and libraries take for themselves nobody knows beforehand, so this is the least that a run needs.
"""

import contextlib
import resource
from pathlib import Path

from penstock.errors import ResourceError
from penstock.program.graph import Program, Table
from penstock.scheduler.wiring import Wiring
from penstock.types import ArraySpec

__all__ = ["available_memory", "check_room", "shared_memory"]

PROCESS_BYTES = 8 << 20
"""What a worker process takes at the very least; measured: 12 to 20 MiB, with its share of what all of them share."""
PROCESS_FILES = 1
"""Descriptors that the launcher holds for each process while it runs."""
OWN_FILES = 24
"""Descriptors that the launcher holds besides."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def shared_memory(program: Program) -> int:
    """Bytes of the segment that holds all edges, but for what may never be touched."""
    nbytes = Wiring(program.edges, [(node.name, node.group) for node in program.nodes]).nbytes
    return nbytes - _untouched(program)


def check_room(program: Program, processes: int) -> None:
    """Return if the machine has room for a program in so many processes.

    Raises:
        ResourceError: in one line: how much it needs, how much there is, what to type.
    """
    shared, free = shared_memory(program), available_memory()
    need = shared + processes * PROCESS_BYTES
    if free is not None and need > free:
        raise ResourceError(
            f"this run needs at least {_gib(need)} of memory ({_gib(shared)} shared by {processes:,} processes), and "
            f"{_gib(free)} are free; {_advice(program, need - free)}"
        )
    files, limit = OWN_FILES + processes * PROCESS_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit not in {resource.RLIM_INFINITY, -1} and files > limit:
        raise ResourceError(
            f"this run needs {files:,} open files, and {limit:,} are allowed; type ulimit -n {files}, or give fewer "
            "--num_workers"
        )


def _untouched(program: Program) -> int:
    """Bytes that tables have for last observations of truncated episodes: pages that none reaches cost no memory.

    There is room for as many as a slot has rows, so counting them would have images take twice what they do.
    """
    tables = (edge for edge in program.edges if isinstance(edge, Table))
    return sum(
        spec.nbytes * table.slots * len(table.writers) for table in tables for spec in table.arrays if _is_last(spec)
    )


def _is_last(spec: ArraySpec) -> bool:
    return spec.name.startswith("final.")


def _advice(program: Program, missing: int) -> str:
    """What to type so that a run needs ``missing`` bytes less."""
    for edge in program.edges:
        if isinstance(edge, Table):
            slot = sum(spec.nbytes for spec in edge.arrays if not _is_last(spec)) * len(edge.writers)
            fits = (edge.slots - 1 - -(-missing // slot)) * edge.turn
            if fits > 0:
                return f"a replay table of --capacity {fits} rows fits"
    return "a smaller --num_envs needs less, so does a smaller --num_workers or --num_steps"


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that this process could still take, within its container's limit; ``None`` where nobody says."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        found.append(int(lines.get("MemAvailable", "").split()[0]) * 1024)
    for path in _CGROUP_LIMITS:
        # "max" where there is no limit.
        with contextlib.suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found, default=None)


def _gib(count: int) -> str:
    return f"{count / (1 << 30):,.1f} GiB"
