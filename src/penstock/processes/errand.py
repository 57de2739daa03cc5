"""Calls one function in a process of its own, which is ended with all that it has started.

So a function may make an environment of the user's. Nothing of it is left behind, and if it dies or hangs, the launcher
goes on. The launcher keeps only the answer.
"""

import logging
import os
import pickle
import sys
import time
from typing import Any, NamedTuple

from penstock.errors import NodeError, PenstockError, ResourceError, UsageError, signal_name
from penstock.processes.command import in_a_file
from penstock.processes.contract import ERRAND
from penstock.processes.starts import Processes
from penstock.types import Cause

__all__ = ["Errand", "call_apart"]

SLOW_S = 10.0
"""After so long the user is told that an errand takes long."""

log = logging.getLogger("penstock.run")


class Errand(NamedTuple):
    """A function, and the words about it in error texts."""

    name: str
    """Name of the process."""
    function: str
    """``module:function``."""
    subject: str
    """What it is about, such as ``environment Pendulum-v1``."""
    cannot: str
    """What it does with the subject, after "cannot be"."""
    takes: str
    """The same, before "takes more than .. s"."""
    error: type[UsageError]
    """Raised if its process ends by a signal or without a traceback, or takes too long."""
    imports: tuple[str, ...] = ()
    """Modules of its process that take long to import, as for `Processes.start_function`."""
    slow: str = ""
    """What is logged once if it takes more than ``SLOW_S``, behind that number of seconds; empty: nothing."""

    def ended(self, how: str) -> UsageError:
        """The error for a process that has ended itself."""
        return self.error(f"{self.subject} cannot be {self.cannot}: it ended its process {how}")


def call_apart(processes: Processes, errand: Errand, limit_s: float, *given: object, **named: object) -> Any:  # noqa: ANN401
    """Call a function in a process of its own. Returns what the function returned.

    Args:
        processes: the process is one of these; no other runs.
        errand: the function.
        limit_s: how long the process may take, in seconds.
        given: the function's arguments, which can be pickled, as the answer can.
        named: its arguments by name.

    Raises:
        PenstockError: what the function raised.
        UsageError: its process ended by a signal or without a traceback, or takes too long: ``errand.error``.
        ResourceError: the system refuses another process.
        NodeError: something else failed; it holds the process's own traceback.
    """
    told = in_a_file(pickle.dumps(sys.path) + pickle.dumps((errand.function, given, named)))
    try:
        processes.start_function(errand.name, ERRAND, (), (told,), threads=1, imports=errand.imports)
        _await_end(processes, errand, limit_s)
        with os.fdopen(os.dup(told), "rb") as file:
            file.seek(0)
            answer = file.read()
    finally:
        processes.clear()
        os.close(told)
    if not answer:
        raise errand.ended("with no error")
    found = pickle.loads(answer)
    if isinstance(found, PenstockError):
        raise found
    return found


def _await_end(processes: Processes, errand: Errand, limit_s: float) -> None:
    """Return once the process has left its answer."""
    begun, slow = time.monotonic(), errand.slow
    while not (ended := processes.exits()):
        processes.wait(1.0)
        if slow and time.monotonic() - begun > SLOW_S:
            log.warning("after %g s %s", SLOW_S, slow)
            slow = ""
        if time.monotonic() - begun > limit_s:
            raise errand.error(f"{errand.takes} {errand.subject} takes more than {limit_s:g} s")
    if ended[0].cause is Cause.REFUSED:
        raise ResourceError(ended[0].detail)
    if ended[0].status < 0:
        raise errand.ended(f"by {signal_name(-ended[0].status)}")
    if ended[0].status and not ended[0].detail:
        raise errand.ended(f"with exit code {ended[0].status}")
    if ended[0].status:
        raise NodeError(errand.name, ended[0].detail)
