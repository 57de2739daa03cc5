"""Draws a comparison: return over steps and over wall time with bands, speed, idle time."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, PercentFormatter

from penstock.errors import RunFolderError
from penstock.paths import expanded
from penstock.saved_runs.comparison.bootstrap import CONFIDENCE
from penstock.saved_runs.comparison.curves import Axis
from penstock.saved_runs.comparison.measures import Comparison, Measure, band
from penstock.saved_runs.comparison.text import described, of_what
from penstock.saved_runs.plot_style import STYLE, color

__all__ = ["draw", "save_picture"]

_FEW = 20
"""A curve of at most so many points shows each point."""


def save_picture(found: Comparison, file: str | Path) -> None:
    """Write the picture; its ending gives the format.

    Raises:
        RunFolderError: the file cannot be written.
    """
    path = expanded(file)
    with mpl.rc_context(STYLE):
        figure = draw(found)
        try:
            figure.savefig(path)
        except OSError as error:
            raise RunFolderError(f"cannot write {path}: {error.strerror or error}; give another --plot") from error


def draw(found: Comparison) -> Figure:
    """Draw the whole picture on a new figure."""
    figure = Figure(figsize=(11.0, 7.4), dpi=130, layout="constrained")
    rows: Any = [["steps", "seconds"], ["rate", "idle"]]
    axes = figure.subplot_mosaic(rows, height_ratios=(1.6, 1.0))
    axes["steps"].sharey(axes["seconds"])
    _returns(axes["steps"], found, "steps", "return_at_equal_steps")
    _returns(axes["seconds"], found, "seconds", "return_at_equal_wall_time")
    axes["steps"].set(title="Return over steps", xlabel="environment steps")
    axes["seconds"].set(title="Return over wall time", xlabel="seconds of training")
    axes["steps"].xaxis.set_major_formatter(EngFormatter(sep=""))
    axes["rate"].set_title("Throughput  (steps/s)")
    _bars(axes["rate"], [found.measure("steps_per_second")], [""])
    axes["rate"].yaxis.set_major_formatter(EngFormatter(sep=""))
    axes["rate"].set_xticks([])
    idle = [measure for measure in found.measures if measure.name.startswith("idle/")]
    axes["idle"].set_title("Idle time")
    _bars(axes["idle"], idle, [measure.name.removeprefix("idle/") for measure in idle])
    axes["idle"].set_ylim(0.0, 1.02)
    axes["idle"].yaxis.set_major_formatter(PercentFormatter(1.0))
    handles = [
        Line2D([], [], color=color(number), linewidth=2.5, label=f"{side.name}  {described(side, found)}")
        for number, side in enumerate(found.sides)
    ]
    figure.legend(handles=handles, loc="outside upper left", fontsize=9)
    notes = f"{of_what(found)}; bands and bars: {CONFIDENCE:.0%} intervals; dotted: where the table compares"
    figure.supxlabel(notes, x=0.995, ha="right", fontsize=8, color="#777777")
    return figure


def _returns(axis: Axes, found: Comparison, over: Axis, name: str) -> None:
    for number, curves in enumerate(found.curves):
        drawn = band(curves, over)
        marker = "o" if len(drawn.positions) <= _FEW else ""
        # A return holds until the next report, as in the table.
        band_look: Any = {"step": "post", "alpha": 0.18, "linewidth": 0}
        axis.fill_between(drawn.positions, drawn.low, drawn.high, color=color(number), **band_look)
        line_look: Any = {"drawstyle": "steps-post", "linewidth": 1.8, "marker": marker, "markersize": 4}
        axis.plot(drawn.positions, drawn.values, color=color(number), **line_look)
    axis.axvline(found.measure(name).at or 0.0, color="#555555", linestyle=":", linewidth=1.0, zorder=1.5)
    axis.margins(x=0.01)


def _bars(axis: Axes, measures: list[Measure], labels: list[str]) -> None:
    """A group of bars for each measure: one bar for each side, with its interval."""
    count = len(measures[0].sides) if measures else 0
    width = 0.8 / max(count, 1)
    for place, measure in enumerate(measures):
        for number, one in enumerate(measure.sides):
            if one is None:
                continue
            x = place + (number - (count - 1) / 2) * width
            axis.bar(x, one.value, 0.9 * width, color=color(number))
            if one.low is not None and one.high is not None:
                axis.vlines(x, one.low, one.high, color="#333333", linewidth=1.2)
    axis.set_xticks(range(len(labels)), labels)
    axis.grid(visible=False, axis="x")
