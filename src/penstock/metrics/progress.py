"""The display of a running training: live on a terminal, plain lines elsewhere. Its errors never end a run."""

import os
import sys
import time
from functools import partial
from typing import TextIO

from penstock.metrics.figures import Figures
from penstock.metrics.output import Outlet, own_stream
from penstock.metrics.report import STEPS_PER_SECOND, Report, Sink

__all__ = ["Lines", "PlainLines", "progress_sink"]

_SECONDS = 10.0
"""After so long without a line the next update has one, whatever ``log_interval`` says."""
_WAITING_LINES = 64
"""Lines that wait for a slow reader; older ones are dropped."""


def progress_sink(title: str, timesteps: int, log_interval: int, least_s: float) -> Sink:
    """A live display if standard output is a terminal, otherwise plain lines.

    Args:
        title: name of the run.
        timesteps: environment steps of the whole run.
        log_interval: updates from one plain line to the next. A live display shows every update.
        least_s: as `Lines` takes it, for plain lines.
    """
    if sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from penstock.metrics.live import LiveDisplay  # noqa: PLC0415 - rich costs 40 ms, which plain lines need not pay

        return LiveDisplay(title, timesteps)
    return PlainLines(Lines(timesteps, log_interval, least_s), sys.stdout)


class Lines:
    """Reports as text: each note, a line every ``log_interval`` updates or 10 s, and one for the last update.

    Lines of ``log_interval`` are at least ``least_s`` apart by the time of the reports, so all `Lines` that take the
    same reports have the same lines of them.

    Args:
        timesteps: environment steps of the whole run.
        log_interval: updates from one line to the next.
        least_s: least seconds of training from one line to the next, but for the last one.
    """

    def __init__(self, timesteps: int, log_interval: int, least_s: float = 0.0) -> None:
        self._figures = Figures(timesteps)
        self._interval = log_interval
        self._least_s = least_s
        self._shown = 0
        self._shown_at = time.monotonic()
        self._shown_s = 0.0

    def of(self, report: Report) -> list[str]:
        """Take one report. Returns its note, and a line if its update is due."""
        self._figures.add(report)
        lines = [report.note] if report.note else []
        passed_s = report.time_s - self._shown_s
        in_turn = report.update % self._interval == 0 and (passed_s >= self._least_s or not self._shown)
        is_due = in_turn or time.monotonic() - self._shown_at > _SECONDS
        if STEPS_PER_SECOND not in report.values or not is_due:
            return lines
        self._shown_s = report.time_s
        return [*lines, self._line()]

    def last(self) -> list[str]:
        """A line for the last update, if it has none yet."""
        return [self._line()] if self._figures.update != self._shown else []

    def _line(self) -> str:
        self._shown, self._shown_at = self._figures.update, time.monotonic()
        return self._figures.line()


class PlainLines:
    """Shows the `Lines` of reports.

    Args:
        lines: of this sink alone.
        stream: for the lines; ``None`` if there is no standard output.
    """

    def __init__(self, lines: Lines, stream: TextIO | None) -> None:
        self._lines = lines
        self._stream = None if stream is None else own_stream(stream)
        self._outlet = None if self._stream is None else Outlet(self._stream, _WAITING_LINES)

    def write(self, report: Report) -> None:
        """Take one report. Show a line if its update is due."""
        for line in self._lines.of(report):
            self._put(line)

    def close(self) -> None:
        """Show the last update, if it is not shown yet."""
        for line in self._lines.last():
            self._put(line)
        if self._outlet is not None:
            self._outlet.close()

    def _put(self, line: str) -> None:
        if self._outlet is not None and self._stream is not None:
            self._outlet.put(partial(_print, self._stream, line))


def _print(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()
