"""The main function of a process that calls one function and leaves its answer; `errand.py` starts it."""

import contextlib
import os
import pickle
import sys
import traceback
from typing import Any, NoReturn

from penstock.errors import PenstockError
from penstock.memory.lifeline import watch
from penstock.processes.log_lines import last_words
from penstock.processes.worker import leave
from penstock.processes.working_directory import leave_removed_directory
from penstock.registry import load

__all__ = ["run"]


def run(told_fd: int, lifeline_fd: int, error_fd: int) -> NoReturn:
    """Call a function, then end this process.

    Args:
        told_fd: file with the module search path, and the function with its arguments. The answer replaces them: what
            the function returned, or the error that a user can correct.
        lifeline_fd: pipe whose end of file ends this process.
        error_fd: pipe for the traceback of any other error.
    """
    watch(lifeline_fd)
    leave_removed_directory()
    # What an environment prints is not part of a command's answer.
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    try:
        with os.fdopen(told_fd, "r+b") as file:
            file.seek(0)
            sys.path[:] = pickle.load(file)
            function, given, named = pickle.load(file)
            file.seek(0)
            file.truncate()
            found: Any
            try:
                found = load(function)(*given, **named)
            except PenstockError as error:
                found = error
            file.write(pickle.dumps(found))
    except BaseException:  # noqa: BLE001 - whatever it was, the launcher is told
        os.write(error_fd, last_words(traceback.format_exc()))
        leave(1)
    leave(0)
