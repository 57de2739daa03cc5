"""The descendants of a process: how it becomes their subreaper, starts, finds and kills them."""

import contextlib
import ctypes
import os
import signal
import sys

__all__ = ["MARK", "adopt", "children", "kill", "kill_group", "marked", "spawn"]

MARK = b"PENSTOCK_PROCESS"
"""Environment variable that identifies a process. What it starts inherits it."""
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"


def adopt() -> bool:
    """Make this process the subreaper of its descendants. False where the system has none, or a sandbox refuses it."""
    return _LINUX and ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def spawn(arguments: list[bytes], environment: dict[bytes, bytes]) -> int:
    """Start a program in a process group of its own. Returns its process id.

    Raises:
        OSError: the system refuses it.
    """
    return os.posix_spawn(
        arguments[0],
        arguments,
        environment,
        setpgroup=0,
        # Python ignores these two signals, and its children would inherit that.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )


def children() -> set[int]:
    """The children of this process, adopted ones included. Empty where the system does not say."""
    if not _LINUX:
        return set()
    own, found = os.getpid(), set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes longer to import than all the rest
        if name.isdigit():
            # After the name, which may hold anything: state, parent.
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int(_read(f"/proc/{name}/stat").rpartition(b")")[2].split()[1]) == own:
                    found.add(int(name))
    return found


def marked(pid: int, mark: bytes) -> bool:
    """Whether a process carries this mark in its environment."""
    try:
        return MARK + b"=" + mark in _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        return file.read()


def kill(pid: int) -> None:
    """Kill a process, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_group(pid: int) -> None:
    """Kill a process group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
