"""Freshness of the copy of a run folder: when the run is asked for the next checkpoint. Knows no cluster."""

import math

__all__ = ["Freshness"]

LEAST_S = 0.2
"""Between two requests."""
MOST_BYTES = 5e6
"""A second, for checkpoints on their way."""
LINK_SHARE = 0.1
"""Of the time, a checkpoint may be on its way for so much."""
AGAIN_S = 3.0
"""After so long an unanswered request is repeated. It may have been lost with a process."""


class Freshness:
    """Notes when the run was last asked, and whether it has answered. Times are in seconds of a monotonic clock.

    The run answers with a checkpoint of its next commit. So if updates come less often than requests, the copy gets a
    checkpoint of each update.
    """

    def __init__(self) -> None:
        self._asked = -math.inf
        self._written = 0
        """How many checkpoints the run had written then."""

    def due(self, now: float, written: int, nbytes: int, transfer_s: float) -> bool:
        """Whether the run is to be asked now. The caller then does so.

        Args:
            now: the time.
            written: how many checkpoints the run has written.
            nbytes: size of the last one that was sent.
            transfer_s: how long that one was on its way.
        """
        pause_s = max(LEAST_S, nbytes / MOST_BYTES, transfer_s / LINK_SHARE)
        if written == self._written:
            pause_s = max(pause_s, AGAIN_S)
        if now - self._asked < pause_s:
            return False
        self._asked, self._written = now, written
        return True
