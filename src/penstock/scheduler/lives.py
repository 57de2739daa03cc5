"""The lives of a process: how each ended, how often it was started again, and when another would be in vain."""

import signal
from typing import NamedTuple

__all__ = ["HOPELESS", "KILLS_IN_A_ROW", "Exit", "Lives", "Restart", "describe"]

HOPELESS = 112
"""Exit status of a process whose error another life would meet again: bad data, wrong usage."""
KILLS_IN_A_ROW = 20
"""A process that is ended from outside so often, each time before it came any further, would be for ever: by a system
that is out of memory, say."""


class Exit(NamedTuple):
    """How a process ended."""

    group: str
    status: int
    """Exit status, or minus the signal's number."""
    detail: str
    """Its traceback, if it could still send one."""


class Restart(NamedTuple):
    """A process that was started again."""

    ended: Exit
    uptime_s: float
    number: int
    """How many times so far, this one included."""


class Lives:
    """The lives of one process. Times are in seconds of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self.begun = now
        self.restarts = 0
        self.fruitless = 0
        """In a row, those that ended by their own fault and without progress."""
        self.killed = 0
        """In a row, those that were ended from outside and without progress."""
        self._handed_on = 0

    def begin(self, now: float) -> None:
        """The next one begins."""
        self.begun = now
        self.restarts += 1

    def end(self, handed_on: int, *, outside: bool) -> None:
        """One ends, by its own fault or from outside, when the process has handed on so much."""
        if handed_on > self._handed_on:
            self.fruitless = self.killed = 0
        self._handed_on = handed_on
        self.fruitless += not outside
        self.killed += outside

    def in_vain(self, ended: Exit, max_restarts: int) -> Exit | None:
        """What to end the run with, if the next life would come no further than those that ended; ``None`` if it may.

        Args:
            ended: how the last one ended.
            max_restarts: how many may end in a row by their own fault and without progress, and be followed by another.
        """
        if self.fruitless > max_restarts:
            times = f"{ended.group} was started {max_restarts} times more, without any progress; at last:\n"
            return ended._replace(detail=times + (ended.detail or describe(ended)))
        if self.killed >= KILLS_IN_A_ROW:
            often = f"{self.killed} times in a row, each time before it came any further"
            line = f"{describe(ended)} {often}; where nobody did that on purpose the machine may be short of memory"
            return ended._replace(detail=line)
        return None


def describe(ended: Exit) -> str:
    """One line on how a process ended."""
    if ended.status < 0:
        return f"process {ended.group} was ended by {signal.Signals(-ended.status).name}"
    return f"process {ended.group} ended with status {ended.status}"
