"""The main function of a probe: make, reset and close an environment, and leave what a run needs to know of it."""

import contextlib
import os
import pickle
import sys
import traceback
from typing import NoReturn

from penstock.envs.sources import EnvProfile, probe
from penstock.errors import PenstockError
from penstock.memory.lifeline import watch
from penstock.processes.worker import leave

__all__ = ["look"]


def look(told_fd: int, lifeline_fd: int, error_fd: int) -> NoReturn:
    """Probe an environment, then end this process.

    Args:
        told_fd: file with the module search path and the arguments of ``probe``. The answer replaces them: what
            ``probe`` returned, or the error that a user can correct.
        lifeline_fd: pipe whose end of file ends this process.
        error_fd: pipe for the traceback of any other error.
    """
    watch(lifeline_fd)
    # What an environment prints is not part of a command's answer.
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    try:
        with os.fdopen(told_fd, "r+b") as file:
            file.seek(0)
            sys.path[:] = pickle.load(file)
            env, vector, arguments = pickle.load(file)
            file.seek(0)
            file.truncate()
            found: EnvProfile | PenstockError
            try:
                found = probe(env, vector, **arguments)
            except PenstockError as error:
                found = error
            file.write(pickle.dumps(found))
    except BaseException:  # noqa: BLE001 - whatever it was, the launcher is told
        os.write(error_fd, traceback.format_exc().encode(errors="replace")[-60_000:])
        leave(1)
    leave(0)
