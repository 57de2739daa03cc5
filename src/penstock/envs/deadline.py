"""A limit on what an environment may take in this process, where no supervisor watches it."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from penstock.errors import EnvError

__all__ = ["deadline"]


@contextlib.contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    """Break off what runs in the ``with`` block after so many seconds.

    It is a signal that breaks it off: in the main thread alone, where nobody else has set the alarm, and not within
    native code that does not return. Elsewhere there is no limit.

    Raises:
        EnvError: ``what`` took longer.
    """

    def ring(*_: object) -> None:
        raise EnvError(f"{what} takes more than {seconds:g} s")

    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0] > 0.0:
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        # None: somebody else's, which Python knows no name for; without an alarm it is not asked for.
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
