"""The live display on a terminal: one small table that is drawn over itself, at least 40 columns wide."""

import itertools
import sys
import time
from functools import partial

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.metrics.evaluation import Progress, progress_text
from penstock.metrics.figures import Figures
from penstock.metrics.output import Outlet, own_stream
from penstock.metrics.report import EVAL_RETURN, LENGTH, RETURN, SHAPED_RETURN, Report

__all__ = ["LiveDisplay", "LiveEvaluation", "Terminal", "sparkline"]

_REDRAW_S = 0.1
_BARS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 24


class Terminal(Console):
    """A console that raises BrokenPipeError when its reader is gone. Rich's own console would end the process."""

    def on_broken_pipe(self) -> None:
        """Raise the error again."""
        raise BrokenPipeError


class LiveDisplay:
    """Draws the latest figures, at most ten times a second.

    Args:
        title: name of the run.
        timesteps: environment steps of the whole run.
        console: where it draws; standard output by default.
    """

    def __init__(self, title: str, timesteps: int, console: Console | None = None) -> None:
        self._title = title
        self._figures = Figures(timesteps)
        self._console = console or Terminal(file=own_stream(sys.stdout))
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        # Only the newest of the waiting drawings is of use.
        self._outlet = Outlet(self._console.file, limit=1)
        self._note = ""
        self._drawn = 0.0
        self._draw()

    def write(self, report: Report) -> None:
        """Take one report, and draw if the last drawing is old enough."""
        self._figures.add(report)
        self._note = report.note or self._note
        if time.monotonic() - self._drawn >= _REDRAW_S:
            self._draw()

    def close(self) -> None:
        """Draw the last figures, and give the terminal its cursor back."""
        self._draw(last=True)
        self._outlet.close()

    def _draw(self, *, last: bool = False) -> None:
        self._drawn = time.monotonic()
        # The view is made here, so that the drawing thread shares no figures with this one.
        self._outlet.put(partial(self._refresh, self._view(), last=last))

    def _refresh(self, view: RenderableType, *, last: bool) -> None:
        """Draw. Only the outlet's thread calls this."""
        self._live.start()
        self._live.update(view, refresh=True)
        if last:
            self._live.stop()

    def _view(self) -> RenderableType:
        figures = self._figures
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column(overflow="fold")
        rows.add_row("steps", f"{figures.steps:,} of {figures.timesteps:,}")
        rows.add_row("speed", f"{figures.rate} steps/s, ETA {figures.left}")
        rows.add_row("return", self._curve())
        if SHAPED_RETURN in figures.values:
            rows.add_row("shaped return", figures.number(SHAPED_RETURN))
        rows.add_row("length", figures.number(LENGTH))
        if EVAL_RETURN in figures.values:
            rows.add_row("evaluation", figures.number(EVAL_RETURN))
        if metrics := figures.metrics():
            rows.add_row("metrics", Text(metrics))
        rows.add_row("losses", figures.losses() or "-")
        rows.add_row("idle", figures.idle() or "-")
        if self._note:
            rows.add_row("note", Text(self._note))
        title = Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")
        lines = Table.grid()
        for line in (title, ProgressBar(total=1.0, completed=figures.share), rows):
            lines.add_row(line)
        return lines

    def _curve(self) -> Text:
        """The mean return; on a wide terminal with UTF-8 also its curve."""
        text = Text(self._figures.number(RETURN), style="bold green")
        width = min(_SPARK_WIDTH, self._console.width - 25)
        if self._console.encoding.startswith("utf") and width > 0:
            text.append("  " + sparkline(list(self._figures.returns), width), style="green")
        return text


class LiveEvaluation:
    """Draws the progress of an evaluation, at most ten times a second. The line disappears at the end.

    Args:
        episodes: of the whole evaluation.
        console: where it draws; standard output by default.
    """

    def __init__(self, episodes: int, console: Console | None = None) -> None:
        self._episodes = episodes
        self._console = console or Terminal(file=own_stream(sys.stdout))
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=True
        )
        # Only the newest of the waiting drawings is of use.
        self._outlet = Outlet(self._console.file, limit=1)
        self._drawn = 0.0
        self._view: RenderableType = ""
        self.show(Progress(0, None, 0.0, None))

    def show(self, progress: Progress) -> None:
        """Draw if the last drawing is old enough."""
        lines = Table.grid()
        lines.add_row(ProgressBar(total=self._episodes, completed=progress.played))
        lines.add_row(Text(progress_text(progress, self._episodes)))
        self._view = lines
        if time.monotonic() - self._drawn >= _REDRAW_S:
            self._drawn = time.monotonic()
            self._outlet.put(partial(self._refresh, self._view))

    def close(self) -> None:
        """Draw the last figures, remove them, and give the terminal its cursor back."""
        self._outlet.put(partial(self._refresh, self._view, last=True))
        self._outlet.close()

    def _refresh(self, view: RenderableType, *, last: bool = False) -> None:
        """Draw. Only the outlet's thread calls this."""
        self._live.start()
        self._live.update(view, refresh=True)
        if last:
            self._live.stop()


def sparkline(values: list[float], width: int) -> str:
    """A curve as text of at most ``width`` characters. Each character is the mean of its part of ``values``."""
    count = min(width, len(values))
    if count == 0:
        return ""
    edges = [len(values) * index // count for index in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)
