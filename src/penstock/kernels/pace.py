"""One thread or two, by what they took lately. For work whose result does not depend on it. Runs nothing itself."""

import statistics
from collections import deque

__all__ = ["Pace"]

WORTH_A_THREAD = 2_000_000
"""Rows times parameters from which a second thread can pay: starting one costs 40 us, as much as a minibatch of 64 rows
of two networks of two layers of 64. On 2 cores 1, 2, 4, 8 of those took 62, 112, 212, 412 us on one thread and 113,
135, 189, 307 us on two."""
TRIALS = 3
"""Calls that one judgement rests on: their median, since a single call may have been interrupted."""
PERIOD = 300
"""Calls from one trial of the slower choice to the next: 1 % of them, and a core that is free again is soon found."""


class Pace:
    """Chooses the quicker number of threads, up to ``threads``.

    Two threads that meet at every minibatch are twice as quick on two idle cores. Beside one other busy process they
    take twice as long as one thread (95 against 51 us a minibatch), because each waits for whichever is not running.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._calls = TRIALS  # both are tried first anyway
        self._seconds: dict[int, deque[float]] = {1: deque(maxlen=TRIALS), threads: deque(maxlen=TRIALS)}

    def threads(self, work: int) -> int:
        """How many threads to use for so much ``work``: rows times parameters."""
        if self._most == 1 or work < WORTH_A_THREAD:
            return 1
        for threads, seconds in self._seconds.items():
            if len(seconds) < TRIALS:
                return threads
        quicker, slower = sorted(self._seconds, key=lambda threads: statistics.median(self._seconds[threads]))
        self._calls = (self._calls + 1) % PERIOD
        return slower if self._calls < TRIALS else quicker

    def took(self, threads: int, work: int, seconds: float) -> None:
        """Note what a call took."""
        if work >= WORTH_A_THREAD:
            self._seconds[threads].append(seconds / work)
