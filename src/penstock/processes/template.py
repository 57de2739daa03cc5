"""A template of a run's processes: it has imported what some of them need, and forks them off.

To import NumPy, Gymnasium and this package takes a process 0.15 s of a core, torch and its compiler 2.6 s more; a fork
takes 2 ms, and shares the memory. A template has one thread, no part of the run, and nothing that a user wrote:
environments are imported and made by the process that steps them. Linux only, where what it forks becomes the warden's;
elsewhere each starts by itself.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable
from socket import CMSG_SPACE, SCM_RIGHTS, SOL_SOCKET, socket
from typing import NoReturn

import numpy as np

from penstock.processes.warden import PID_BYTES, START_FDS, take_message
from penstock.processes.worker import work
from penstock.registry import INFERENCE, NODES, load

__all__ = ["COMMAND", "GROUP", "main"]

GROUP = b"PENSTOCK_GROUP"
"""Variable of a process's environment: its placement group, by which the system's own tools call it as well."""
COMMAND = "from penstock.processes.template import main; main()"


def main() -> None:
    """Entry: ``argv`` holds modules to import, and at its end the socket of the warden; its end of file is the end."""
    *modules, control = sys.argv[1:]
    for kind in NODES.names():
        load(NODES[kind])
    load(INFERENCE["native"])
    for module in modules:
        importlib.import_module(module)
    # What is there now is shared by all that are forked, until one of them writes to it; the collector would.
    gc.collect()
    gc.freeze()
    # What imports have said would be said again by each that is forked.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
    # Where the system will have no further process, none is forked; the warden says so when it finds the same. Where
    # there is no warden any more, nobody asks.
    with socket(fileno=int(control)) as warden, contextlib.suppress(OSError):
        warden.sendall(bytes(PID_BYTES))
        while (pid := _serve(warden)) is not None:
            warden.sendall(pid.to_bytes(PID_BYTES, "little"))


def _serve(warden: socket) -> int | None:
    """Fork one process as it is asked for; ``None`` at the end of file."""
    received, descriptors = b"", []
    while (taken := take_message(received)) is None:
        content, ancillary, _, _ = warden.recvmsg(65_536, CMSG_SPACE(START_FDS * 4))
        if not content:
            return None
        received += content
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                descriptors += memoryview(data).cast("i").tolist()
    # One is asked for at a time, so nothing stands behind it.
    (numbers, environment), _ = taken
    *given, hold = descriptors

    def begin() -> NoReturn:
        warden.close()
        # Nobody knows of it yet: it waits until its number is noted, and ends where it never will be.
        if not os.read(hold, 1):
            os._exit(0)
        os.close(hold)
        os.environb.clear()
        os.environb.update(environment)
        # Python's own generator begins anew after a fork; NumPy's global one, which environments may use, does not.
        np.random.seed()
        with contextlib.suppress(OSError), open("/proc/self/comm", "wb") as name:  # noqa: PTH123
            name.write(environment[GROUP])
        work(*numbers, *given)

    try:
        return _fork(begin)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _fork(begin: Callable[[], NoReturn]) -> int:
    """Fork twice, so that the process is an orphan, which the warden adopts; return its number once it is.

    Raises:
        OSError: the system will have no further process.
    """
    told, tell = os.pipe()
    if (between := os.fork()) == 0:
        try:
            if os.fork() == 0:
                os.setpgid(0, 0)
                os.write(tell, os.getpid().to_bytes(PID_BYTES, "little"))
                os.close(told)
                os.close(tell)
                begin()
        finally:
            # Nobody asks for the status of the one in between; the other does not come here unless something failed.
            os._exit(1)
    os.close(tell)
    answer = os.read(told, PID_BYTES)
    os.close(told)
    os.waitpid(between, 0)
    if not answer:
        raise OSError("no further process")
    return int.from_bytes(answer, "little")
