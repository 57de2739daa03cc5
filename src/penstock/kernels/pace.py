"""Chooses between one thread and two by their recent times. The work's result must not depend on it. Runs no work."""

import statistics
from collections import deque

__all__ = ["Pace"]

WORTH_A_THREAD = 2_000_000
"""Rows times parameters from which a second thread can be worth its cost. Starting a thread takes 40 us, as long as one
minibatch of 64 rows for two networks of two layers of 64. On 2 cores, calls with 1, 2, 4, 8 such minibatches took 62,
112, 212, 412 us on one thread and 113, 135, 189, 307 us on two."""
TRIALS = 3
"""Calls after which each number of threads is first judged, by the median of their times."""
WINDOW = 15
"""Calls whose median must be slow before two threads are given up. An interruption slows only two or three calls."""
PERIOD = 100
"""Calls on one thread until two are tried again. So a core that becomes free is soon used."""


class Pace:
    """Chooses the faster number of threads, 1 or ``threads``.

    Two threads wait for each other at every minibatch. On two idle cores they are twice as fast as one. While another
    process keeps one core busy, they take twice as long as one (95 against 51 us a minibatch), because each waits while
    the other is not running. The speed of one thread hardly depends on other processes, so it is only measured in use.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._one: deque[float] = deque(maxlen=TRIALS)
        self._most_now: deque[float] = deque(maxlen=WINDOW)
        self._waited = PERIOD
        """Calls on one thread since two were given up. From ``PERIOD`` on, two are in use or on trial."""

    def threads(self, work: int) -> int:
        """Number of threads for the next call. ``work`` is rows times parameters."""
        if self._most == 1 or work < WORTH_A_THREAD or len(self._one) < TRIALS or self._waited < PERIOD:
            return 1
        return self._most

    def took(self, threads: int, work: int, seconds: float) -> None:
        """Note how long a call took."""
        if self._most == 1 or work < WORTH_A_THREAD:
            return
        if threads == 1:
            self._one.append(seconds / work)
            self._waited += 1
            return
        now = self._most_now
        now.append(seconds / work)
        if len(now) in {TRIALS, WINDOW} and statistics.median(now) > statistics.median(self._one):
            now.clear()
            self._waited = 0
