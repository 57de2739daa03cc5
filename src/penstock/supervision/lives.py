"""The lives of a process: how each ended, how often it was restarted, and when another restart is in vain."""

from typing import NamedTuple

from penstock.errors import signal_name
from penstock.types import Cause

__all__ = ["HOPELESS", "KILLS_IN_A_ROW", "Exit", "Lives", "Restart", "describe"]

HOPELESS = 112
"""Exit status after an error that every life would meet again: bad data, wrong usage."""
KILLS_IN_A_ROW = 20
"""A process may be killed from outside so often in a row without progress. More would go on for ever: the system may be
out of memory, say."""


class Exit(NamedTuple):
    """How a process ended."""

    group: str
    """Empty: the run as a whole stood still."""
    status: int
    """Exit status, or minus the signal's number."""
    detail: str
    """Its traceback, if it sent one. Of a process that crashed in native code or hung: a line on that, then stacks."""
    cause: Cause = Cause.NONE


class Restart(NamedTuple):
    """A process that was started again."""

    ended: Exit
    uptime_s: float
    number: int
    """How many restarts there were, this one included."""


class Lives:
    """The lives of one process. Times are in seconds of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self.begun = now
        self.restarts = 0
        self.fruitless = 0
        """Lives in a row that ended by their own fault and without progress."""
        self.killed = 0
        """Lives in a row that were killed from outside without progress."""
        self._achieved = 0

    def begin(self, now: float) -> None:
        """Note that the next life begins."""
        self.begun = now
        self.restarts += 1

    def end(self, achieved: int, *, charged: bool) -> None:
        """Note that a life ended.

        Args:
            achieved: a number that grows with the progress of the process.
            charged: it ended by its own fault; false: it was killed from outside.
        """
        if achieved > self._achieved:
            self.fruitless = self.killed = 0
        self._achieved = achieved
        self.fruitless += charged
        self.killed += not charged

    def in_vain(self, ended: Exit, max_restarts: int) -> Exit | None:
        """Why another restart is in vain; ``None`` if it is not.

        Args:
            ended: how the last life ended.
            max_restarts: restarts in a row after lives that ended by their own fault and without progress.
        """
        if self.fruitless > max_restarts and ended.cause is Cause.REFUSED:
            return ended
        if self.fruitless > max_restarts:
            times = "time" if max_restarts == 1 else "times"
            line = f"{ended.group} was started {max_restarts} {times} more, without any progress; at last:\n"
            return ended._replace(detail=line + (ended.detail or describe(ended)))
        if self.killed >= KILLS_IN_A_ROW:
            often = f"{self.killed} times in a row, each time before it came any further"
            line = f"{describe(ended)} {often}; if nobody did that on purpose, the machine may be short of memory"
            return ended._replace(detail=line)
        return None


def describe(ended: Exit) -> str:
    """One line on how a process ended."""
    if ended.status < 0:
        return f"process {ended.group} was ended by {signal_name(-ended.status)}"
    return f"process {ended.group} ended with status {ended.status}"
