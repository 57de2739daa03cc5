"""How far an evaluation is: one live line on a terminal, a plain line now and then elsewhere."""

import os
import sys
import time
from functools import partial
from typing import Protocol, TextIO

from penstock.metrics.figures import clock
from penstock.metrics.output import Outlet, own_stream

__all__ = ["EvaluationDisplay", "PlainProgress", "evaluation_display", "progress_text"]

_PLAIN_S = 10.0
"""Seconds between plain lines: an evaluation that takes less says nothing but its result."""


class EvaluationDisplay(Protocol):
    """Shows how far an evaluation is."""

    def show(self, played: int, mean_return: float | None, time_s: float) -> None:
        """Take the number of episodes played, their mean return if there are some, and the seconds so far."""
        ...

    def close(self) -> None:
        """Free what the display holds."""
        ...


def evaluation_display(episodes: int) -> EvaluationDisplay:
    """The display of an evaluation of so many episodes that suits where standard output goes."""
    if sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from penstock.metrics.live import LiveEvaluation  # noqa: PLC0415 - rich costs 40 ms

        return LiveEvaluation(episodes)
    return PlainProgress(episodes, sys.stdout)


def progress_text(played: int, episodes: int, mean_return: float | None, time_s: float) -> str:
    """``evaluation: 37 of 100 episodes, return -153.2, 0:12``."""
    mean = "" if mean_return is None else f", return {mean_return:,.1f}"
    return f"evaluation: {played:,} of {episodes:,} episodes{mean}, {clock(time_s)}"


class PlainProgress:
    """A line every ten seconds.

    Args:
        episodes: how many are asked for.
        stream: where lines go; ``None`` where there is no standard output.
        interval_s: seconds from one line to the next.
    """

    def __init__(self, episodes: int, stream: TextIO | None, interval_s: float = _PLAIN_S) -> None:
        self._episodes = episodes
        self._interval_s = interval_s
        self._shown = time.monotonic()
        self._stream = None if stream is None else own_stream(stream)
        # Of lines that wait for a slow reader only the newest is of use.
        self._outlet = None if self._stream is None else Outlet(self._stream, limit=1)

    def show(self, played: int, mean_return: float | None, time_s: float) -> None:
        """Write a line if it is time for one."""
        if time.monotonic() < self._shown + self._interval_s or self._outlet is None or self._stream is None:
            return
        self._shown = time.monotonic()
        self._outlet.put(partial(_print, self._stream, progress_text(played, self._episodes, mean_return, time_s)))

    def close(self) -> None:
        """Write what waits."""
        if self._outlet is not None:
            self._outlet.close()


def _print(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()
