"""One thread or two, by what they took lately. For work whose result does not depend on it. Runs nothing itself."""

import statistics
from collections import deque

__all__ = ["Pace"]

WORTH_A_THREAD = 2_000_000
"""Rows times parameters from which a second thread can pay: starting one costs 40 us, as much as a minibatch of 64 rows
of two networks of two layers of 64. On 2 cores 1, 2, 4, 8 of those took 62, 112, 212, 412 us on one thread and 113,
135, 189, 307 us on two."""
TRIALS = 3
"""Calls from which each number of threads is first judged, by their median."""
WINDOW = 15
"""Calls that have to be slow in the median before two threads are given up: an interruption takes two or three."""
PERIOD = 100
"""Calls on one thread until two are tried again, so that a core that is free again is soon found."""


class Pace:
    """Chooses the quicker number of threads, 1 or ``threads``.

    Two threads that meet at every minibatch are twice as quick on two idle cores. Beside one other busy process they
    take twice as long as one thread (95 against 51 us a minibatch), because each waits for whichever is not running.
    One thread's own pace hardly depends on its surroundings, so it is tried only when it is in use.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._one: deque[float] = deque(maxlen=TRIALS)
        self._most_now: deque[float] = deque(maxlen=WINDOW)
        self._waited = PERIOD
        """Calls on one thread since more were given up; at the period more are in use, or on trial."""

    def threads(self, work: int) -> int:
        """How many threads to use for so much ``work``: rows times parameters."""
        if self._most == 1 or work < WORTH_A_THREAD or len(self._one) < TRIALS or self._waited < PERIOD:
            return 1
        return self._most

    def took(self, threads: int, work: int, seconds: float) -> None:
        """Note what a call took."""
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
