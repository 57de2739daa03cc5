"""A template: a process that has imported what worker processes need, and forks them.

Importing NumPy, Gymnasium and penstock takes 0.2 s of a core; torch and its compiler take 2.6 s more. A fork takes
2 ms and shares the memory. A template has one thread, holds no part of the run and imports nothing that a user wrote:
the process that steps an environment imports and makes it. Templates exist on Linux only, where the warden adopts what
they fork. Elsewhere every process starts by itself.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable
from socket import CMSG_SPACE, SCM_RIGHTS, SOL_SOCKET, socket

import numpy as np

from penstock.processes.contract import ERRAND, GROUP, PROBE, WORKER
from penstock.processes.warden.messages import PID_BYTES, START_FDS, take_message
from penstock.registry import INFERENCE, NODES, UPDATES, load

__all__ = ["main"]

MODULES = ("gymnasium",)
"""Imported by every template, beside penstock's own: most environments need it."""


def main() -> None:
    """Entry. ``argv`` holds modules to import and, last, the warden's socket. The template ends when that is closed."""
    *modules, control = sys.argv[1:]
    light = (INFERENCE["native"].build, UPDATES["fused"].stream)
    for entry in (WORKER, ERRAND, PROBE, *light):
        load(entry)
    for kind in NODES.names():
        # A kind of node may need packages of an extra. Without them no run has such a node: planning refuses it.
        with contextlib.suppress(ModuleNotFoundError):
            load(NODES[kind])
    for module in (*MODULES, *modules):
        importlib.import_module(module)
    # Forks share these objects until one writes to them. The garbage collector would write: it leaves them out now.
    gc.collect()
    gc.freeze()
    gc.enable()
    # Text that imports have printed and not flushed would be printed again by every fork.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
    # An OSError means one of two things. 1. The system refuses another process: the warden will find the same and say
    # so. 2. The warden is gone: nobody will ask again.
    with socket(fileno=int(control)) as warden, contextlib.suppress(OSError):
        warden.sendall(bytes(PID_BYTES))
        while (pid := _serve(warden)) is not None:
            warden.sendall(pid.to_bytes(PID_BYTES, "little"))


def _serve(warden: socket) -> int | None:
    """Fork the next process that the warden asks for; ``None`` when the socket is closed."""
    received, descriptors = b"", []
    while (taken := take_message(received)) is None:
        content, ancillary, _, _ = warden.recvmsg(65_536, CMSG_SPACE(START_FDS * 4))
        if not content:
            return None
        received += content
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                descriptors += memoryview(data).cast("i").tolist()
    # The warden asks for one process at a time, so there is no second message.
    (entry, numbers, environment), _ = taken
    *given, hold = descriptors

    def begin() -> None:
        warden.close()
        # The warden does not know this process yet. So this process waits for a byte from the warden, which comes once
        # the warden knows it. If the pipe is closed instead, this process ends.
        if not os.read(hold, 1):
            os._exit(0)
        os.close(hold)
        os.environb.clear()
        os.environb.update(environment)
        # Python seeds its own generator anew after a fork. NumPy's global one, which environments may use, it does not.
        np.random.seed()
        with contextlib.suppress(OSError), open("/proc/self/comm", "wb") as name:  # noqa: PTH123
            name.write(environment[GROUP])
        load(entry)(*numbers, *given)

    try:
        return _fork(begin)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _fork(begin: Callable[[], None]) -> int:
    """Fork twice, so that the process is an orphan and the warden adopts it. Returns its process id.

    Raises:
        OSError: the system refuses another process.
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
            # Nobody reads the status of the process in between. The worker comes here only after a failure.
            os._exit(1)
    os.close(tell)
    answer = os.read(told, PID_BYTES)
    os.close(told)
    os.waitpid(between, 0)
    if not answer:
        raise OSError("no further process")
    return int.from_bytes(answer, "little")
