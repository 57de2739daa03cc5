"""How soon a server is expected to answer, and when one that fails is tried again. Reads no clock and opens no socket.

A client that asks one question at a time has no queue of its own to look at, and cannot see those of its servers. It
sees how long answers take: a server that is slower, farther away or busier takes longer.
"""

import math

__all__ = ["AnswerTimes"]

_GAIN = 0.125
"""Weight of the newest answer in the mean: that of a new round-trip time in RFC 6298."""
_HALF_LIFE_S = 10.0
"""After so long without an answer half of the mean is left. Finagle's Peak EWMA keeps 1/e of it after ten seconds."""
_PAUSE_S = 0.5
"""After the first failure. Each further one doubles it."""
_LONGEST_DOUBLED_S = 60.0
"""To so many seconds the pause doubles."""
_PAUSE_PER_SECOND = 10.0
"""Least pause for each second that the failed try took. So tries at a dead machine take a tenth of the time at most.

After a slow try the pause may be longer than ``_LONGEST_DOUBLED_S``."""


class AnswerTimes:
    """What a client has seen of one server. All moments are seconds of one clock that never goes back.

    Attributes:
        mean: running mean of the seconds that its answers took; 0 before the first one, and after a failure.
        failures: tries outside of pauses that failed since its last answer.
    """

    def __init__(self) -> None:
        self.mean = 0.0
        self.failures = 0
        self._answered_at = 0.0
        self._rests_until = -math.inf

    def answered(self, seconds: float, now: float) -> None:
        """It has answered a question within so many seconds."""
        self.mean += (seconds - self.mean) * (_GAIN if self.mean else 1.0)
        self._answered_at = now
        self.failures = 0
        self._rests_until = -math.inf

    def failed(self, seconds: float, now: float) -> None:
        """Note that the server did not answer, after ``seconds`` of waiting. It rests for a pause.

        - Until the pause is over, other servers are asked first.
        - If no other server answers, it is asked in its pause as well. If it fails then, its pause does not get longer.
          So it rests hardly longer than it was away, even if the client's own network was at fault.
        """
        if self.rest(now):
            return
        # A server that is away for a day fails more than a thousand times: a power of that is more than a float holds.
        pause = min(math.ldexp(_PAUSE_S, min(self.failures, 1000)), _LONGEST_DOUBLED_S)
        self._rests_until = now + max(pause, _PAUSE_PER_SECOND * seconds)
        self.failures += 1
        # It may come back as another machine.
        self.mean = 0.0

    def rest(self, now: float) -> float:
        """Seconds until its pause is over; 0: it does not rest."""
        return max(self._rests_until - now, 0.0)

    def expected(self, now: float) -> float:
        """Seconds that its next answer is expected to take. 0, if it has never answered: it is asked first.

        The mean, of which half is forgotten in every ten seconds without an answer. Otherwise a server that was slow
        for a moment would never be asked again, and nobody would see that it is not slow any more.
        """
        return self.mean * math.exp2((self._answered_at - now) / _HALF_LIFE_S)

    def place(self, now: float) -> tuple[float, float]:
        """The sort key of this server: the server with the smallest key is asked first, then the next one.

        1. Servers without a pause, the one that is expected to answer soonest first.
        2. Servers that rest, the one whose pause ends soonest first.

        Source: Finagle's load balancer "Peak EWMA". That one also counts questions under way. Here there are none,
        because the client waits for each answer.
        """
        return self.rest(now), self.expected(now)
