"""A time limit for an environment in this process, which no supervisor watches."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import EnvError

__all__ = ["Deadline", "deadline"]


@dataclass
class Deadline:
    """A time limit while it runs, and afterwards."""

    passed: bool = False
    """The ``with`` block was broken off."""


@contextlib.contextmanager
def deadline(seconds: float, what: str) -> Iterator[Deadline]:
    """Break off the ``with`` block after ``seconds``, by a signal.

    There is no limit in a thread that is not the main one, while other code has set the alarm, or in native code that
    does not return.

    Raises:
        EnvError: ``what`` took longer.
    """
    limit = Deadline()

    def ring(*_: object) -> None:
        limit.passed = True
        raise EnvError(f"{what} takes more than {seconds:g} s")

    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0] > 0.0:
        yield limit
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield limit
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        # None means a handler that Python did not install. It is not needed while no alarm is set.
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
