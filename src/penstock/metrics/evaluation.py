"""Shows the progress of an evaluation: one live line on a terminal, elsewhere a plain line every ten seconds."""

import os
import sys
import time
from functools import partial
from typing import NamedTuple, Protocol, TextIO

from penstock.metrics.figures import clock
from penstock.metrics.output import Outlet, own_stream

__all__ = ["NEEDS_AN_END", "EvaluationDisplay", "PlainProgress", "Progress", "evaluation_display", "progress_text"]

_PLAIN_S = 10.0
"""Seconds between plain lines. A shorter evaluation prints its result only."""


NEEDS_AN_END = "if none ever ends, let `step` return truncated=True after a number of steps"
"""Said where no episode ends. Without ended episodes there are no returns."""


class Progress(NamedTuple):
    """How far an evaluation is."""

    played: int
    """Number of episodes that were played to their end."""
    mean_return: float | None
    """Of these; ``None`` without episodes."""
    time_s: float
    """Seconds so far."""
    left: int | None
    """Once the time is up: number of episodes that still end. ``None`` before that."""


class EvaluationDisplay(Protocol):
    """Shows the progress of an evaluation."""

    def show(self, progress: Progress) -> None:
        """Take the progress."""
        ...

    def close(self) -> None:
        """Free what the display holds."""
        ...


def evaluation_display(episodes: int) -> EvaluationDisplay:
    """A live display if standard output is a terminal, otherwise plain lines."""
    if sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from penstock.metrics.live import LiveEvaluation  # noqa: PLC0415 - rich costs 40 ms

        return LiveEvaluation(episodes)
    return PlainProgress(episodes, sys.stdout)


def progress_text(progress: Progress, episodes: int) -> str:
    """``evaluation: 37 of 100 episodes, return -153.2, 0:12``."""
    mean = "" if progress.mean_return is None else f", return {progress.mean_return:,.1f}"
    ends = "" if progress.left is None else f"; --eval_seconds are over, {progress.left:,} still to end"
    if ends and not progress.played:
        # The user would wait for nothing.
        ends += f", none has ended so far: {NEEDS_AN_END} (the run is complete: Ctrl-C leaves it)"
    return f"evaluation: {progress.played:,} of {episodes:,} episodes{mean}, {clock(progress.time_s)}{ends}"


class PlainProgress:
    """A line every ten seconds.

    Args:
        episodes: of the whole evaluation.
        stream: for the lines; ``None`` if there is no standard output.
        interval_s: seconds from one line to the next.
    """

    def __init__(self, episodes: int, stream: TextIO | None, interval_s: float = _PLAIN_S) -> None:
        self._episodes = episodes
        self._interval_s = interval_s
        self._shown = time.monotonic()
        self._stream = None if stream is None else own_stream(stream)
        # If lines wait for a slow reader, only the newest is of use.
        self._outlet = None if self._stream is None else Outlet(self._stream, limit=1)

    def show(self, progress: Progress) -> None:
        """Write a line if it is time for one."""
        if time.monotonic() < self._shown + self._interval_s or self._outlet is None or self._stream is None:
            return
        self._shown = time.monotonic()
        self._outlet.put(partial(_print, self._stream, progress_text(progress, self._episodes)))

    def close(self) -> None:
        """Write the waiting line."""
        if self._outlet is not None:
            self._outlet.close()


def _print(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()
