"""Draws the curves of one run or of several: return, losses, throughput and idle time."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, PercentFormatter

from penstock.errors import RunFolderError, UsageError
from penstock.metrics.figures import idle_shares
from penstock.metrics.report import (
    APPROX_KL,
    ENTROPY,
    EVAL_RETURN,
    POLICY_LOSS,
    RETURN,
    STEPS_PER_SECOND,
    VALUE_LOSS,
    Report,
)
from penstock.paths import expanded
from penstock.saved_runs.curves import Run, curve, read_runs, smoothed
from penstock.saved_runs.plot_style import STYLE, color

__all__ = ["FILE_NAME", "draw", "plot"]

FILE_NAME = "curves.png"
_Dashes: TypeAlias = Literal["-", "--", ":"]
_KINDS: tuple[tuple[str, _Dashes], ...] = (("env", "-"), ("learner", "--"), ("policy", ":"))


def plot(log_dir: str | Path, *, save: bool, smooth: float) -> Path | None:
    """Draw the curves of one run folder, or of every run in a folder.

    Args:
        log_dir: a run folder, or a folder of runs.
        save: write a PNG into ``log_dir``; otherwise open a window and return once it is closed.
        smooth: width of the moving average of a bold line, as a share of the curve.

    Returns:
        Path of the PNG; ``None`` if none was written.

    Raises:
        RunFolderError: there is no run, or the PNG cannot be written.
        UsageError: no window can be opened here.
    """
    folder = expanded(log_dir)
    runs = read_runs(folder)
    if not save:
        _show(runs, smooth)
        return None
    path = folder / FILE_NAME
    with mpl.rc_context(STYLE):
        figure = draw(runs, smooth)
        try:
            figure.savefig(path, format="png")
        except OSError as error:
            raise RunFolderError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def draw(runs: Sequence[Run], smooth: float, figure: Figure | None = None) -> Figure:
    """Draw the whole picture on a new figure, or on the given one."""
    figure = figure or Figure(figsize=(11.0, 8.2), dpi=130, layout="constrained")
    rows: list[Any] = [
        ["return", "return", "return", "return"],
        ["policy", "value", "entropy", "kl"],
        ["rate", "rate", "idle", "idle"],
    ]
    axes = figure.subplot_mosaic(rows, height_ratios=(1.55, 1.0, 1.0), sharex=True)
    panels: tuple[tuple[str, str, str], ...] = (
        ("return", RETURN, "Return  (mean of the last 100 training episodes)"),
        ("policy", POLICY_LOSS, "Policy loss"),
        ("value", VALUE_LOSS, "Value loss"),
        ("entropy", ENTROPY, "Entropy"),
        ("kl", APPROX_KL, "KL of an update"),
        ("rate", STEPS_PER_SECOND, "Throughput  (steps/s)"),
    )
    for name, metric, title in panels:
        axes[name].set_title(title)
        for number, run in enumerate(runs):
            _line(axes[name], run, partial(_metric, name=metric), smooth=smooth, color=color(number))
    for number, run in enumerate(runs):
        _evaluations(axes["return"], run, color(number))
    _idle(axes["idle"], runs, smooth)
    for name in ("value", "rate"):
        axes[name].yaxis.set_major_formatter(EngFormatter(sep=""))
    axes["rate"].set_ylim(bottom=0.0)
    for name in ("rate", "idle"):
        axes[name].set_xlabel("environment steps")
    axes["return"].xaxis.set_major_formatter(EngFormatter(sep=""))
    axes["return"].margins(x=0.01)
    axes["return"].tick_params(labelbottom=True)
    _legend(figure, runs, smooth)
    return figure


def _line(
    axis: Axes, run: Run, value: Callable[[Report], float | None], *, smooth: float, color: str, style: _Dashes = "-"
) -> None:
    """One curve: a pale line of the measured values, a bold line of the smoothed ones."""
    steps, values = curve(run, value)
    bold = smoothed(values, smooth)
    # A lone point has no line; a marker shows it.
    marker = "o" if len(values) == 1 else ""
    if bold is not values:
        axis.plot(steps, values, color=color, alpha=0.2, linewidth=0.8, zorder=1.5)
    axis.plot(steps, bold, color=color, linewidth=1.8, zorder=2.5, linestyle=style, marker=marker, markersize=4)


def _evaluations(axis: Axes, run: Run, color: str) -> None:
    steps, values = curve(run, partial(_metric, name=EVAL_RETURN))
    axis.plot(steps, values, "D", color=color, markersize=5, markeredgecolor="white", markeredgewidth=0.8, zorder=3)


def _idle(axis: Axes, runs: Sequence[Run], smooth: float) -> None:
    """Idle time of each kind of node. Colours tell runs apart, dashes tell kinds of node apart."""
    axis.set_title("Idle time")
    shown = []
    for kind, style in _KINDS:
        if not any(kind in idle_shares(report.values) for run in runs for report in run.reports):
            continue
        shown.append(Line2D([], [], color="#333333", linestyle=style, label=kind))
        for number, run in enumerate(runs):
            _line(axis, run, partial(_idle_share, kind=kind), smooth=smooth, color=color(number), style=style)
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    if shown:
        axis.legend(handles=shown, loc="lower right", ncols=len(shown), bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)


def _legend(figure: Figure, runs: Sequence[Run], smooth: float) -> None:
    """Above the picture: names of the runs on the left; on the right, the meaning of pale, bold and diamonds."""
    handles = [Line2D([], [], color=color(number), linewidth=2.5, label=run.name) for number, run in enumerate(runs)]
    columns = min(3, len(runs)) if len(runs) > 8 else min(2, len(runs))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, fontsize=9)
    notes = [f"bold: average over {smooth:.0%} of the curve, pale: as measured"] if smooth else []
    if any(EVAL_RETURN in report.values for run in runs for report in run.reports):
        notes.append("◆ evaluation, greedy")
    if notes:
        figure.text(0.995, 0.995, "   ".join(notes), ha="right", va="top", fontsize=8, color="#777777")


def _show(runs: Sequence[Run], smooth: float) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415  (a PNG needs no window system)

    if mpl.get_backend().lower() in {"agg", "pdf", "ps", "svg", "cairo", "template"}:
        raise UsageError("no window can be opened here; use --save_fig True")
    with mpl.rc_context(STYLE):
        draw(runs, smooth, plt.figure(figsize=(11.0, 8.2), layout="constrained"))
        plt.show()


def _metric(report: Report, name: str) -> float | None:
    return report.values.get(name)


def _idle_share(report: Report, kind: str) -> float | None:
    return idle_shares(report.values).get(kind)
