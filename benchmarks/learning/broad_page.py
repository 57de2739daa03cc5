"""The page of `benchmarks.learning.broad`: a table and curves of the runs that are there, and what is still open.

Trains nothing. An interval is a percentile bootstrap of the mean over seeds; with one seed there is none.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.learning.broad_plan import Run
from benchmarks.learning.pairs import OURS, PEER
from benchmarks.plots import COLORS
from penstock.saved_runs.comparison.bootstrap import Estimate, estimate

__all__ = ["Row", "rows", "text", "write_page"]

RESAMPLES = 10_000
COLUMNS = 4
COLOR = {OURS: COLORS["penstock"], PEER: COLORS["peer"]}
HEAD = """# Every algorithm at its defaults, on tasks that nobody tuned for

`make learn-broad` trains and writes this page.

- A figure is the mean over seeds of the return of 100 greedy episodes at the end. In brackets: its 95 % interval, by
  bootstrap over the seeds, which are few.
- Both sides play the same number of steps, each at its own defaults, on one torch thread.

"""


class Row(NamedTuple):
    """One algorithm on one task."""

    task: str
    algo: str
    timesteps: int
    found: dict[str, list[dict[str, Any]]]
    """Side -> its results, by seed."""
    planned: int
    """How many runs it has in all."""

    def done(self) -> int:
        """How many of them are there."""
        return sum(map(len, self.found.values()))

    def behind(self) -> bool:
        """Whether ours plays worse than the peer's, by the means of what is there."""
        means = {side: np.mean(_returns(results)) for side, results in self.found.items() if results}
        return len(means) == 2 and bool(means[OURS] < means[PEER])


def rows(planned: Sequence[Run]) -> list[Row]:
    """One row for each algorithm on each task, in the order of the first runs."""
    found: dict[tuple[str, str], Row] = {}
    for run in planned:
        new = Row(run.task, run.algo, run.timesteps, {}, 0)
        row = found.get((run.task, run.algo), new)
        results = row.found.setdefault(run.side, [])
        if run.path().exists():
            results.append(json.loads(run.path().read_text("utf-8")))
        found[run.task, run.algo] = row._replace(planned=row.planned + 1)
    return list(found.values())


def text(listed: Sequence[Row]) -> str:
    """The page as Markdown."""
    lines = [
        "| task | algorithm | steps | penstock | stable-baselines3 | runs | last on | commits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in listed:
        if not row.done():
            continue
        sides = [_cell(row.found[side]) if side in row.found else "has none" for side in (OURS, PEER)]
        if row.behind():
            sides[0] += " **behind**"
        results = [result for side in row.found.values() for result in side]
        commits = ", ".join(f"`{commit[:7]}`" for commit in sorted({result["commit"] for result in results}))
        last = max(result["date"] for result in results)
        cells = [row.task, row.algo, f"{row.timesteps:,}", *sides, f"{row.done()} of {row.planned}", last, commits]
        lines.append(f"| {' | '.join(cells)} |")
    unseen = [f"{row.algo} on {row.task}" for row in listed if not row.done()]
    done, planned = sum(row.done() for row in listed), sum(row.planned for row in listed)
    lines += ["", f"{done} of {planned} runs are there."]
    if unseen:
        lines += ["", f"Not begun: {', '.join(unseen)}."]
    return HEAD + "\n".join(lines) + "\n\n![Return over steps](curves.png)\n"


def write_page(folder: Path, planned: Sequence[Run]) -> None:
    """Write ``README.md`` and ``curves.png`` into a folder."""
    listed = rows(planned)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(text(listed), "utf-8")
    begun = [row for row in listed if row.done()]
    if begun:
        _draw(folder / "curves.png", begun)


def _cell(results: Sequence[dict[str, Any]]) -> str:
    if not results:
        return "open"
    sample = np.array(_returns(results))
    found: Estimate = estimate(float(sample.mean()), sample, RESAMPLES, np.random.default_rng(0))
    interval = "" if found.low is None else f" [{found.low:.1f}, {found.high:.1f}]"
    return f"{found.value:.1f}{interval}"


def _returns(results: Sequence[dict[str, Any]]) -> list[float]:
    return [result["mean_return"] for result in results]


def _draw(path: Path, begun: Sequence[Row]) -> None:
    """One small picture for each row: a line a seed, ours and the peer's."""
    height = -(-len(begun) // COLUMNS)
    figure = Figure(figsize=(3.2 * COLUMNS, 2.3 * height), layout="constrained")
    places = figure.subplots(height, COLUMNS, squeeze=False).flatten()
    for axes, row in zip(places, begun, strict=False):
        for side, results in row.found.items():
            for number, result in enumerate(results):
                line = result["curve"]
                label = side if number == 0 else None
                axes.plot(line["steps"], line["returns"], color=COLOR[side], linewidth=1.0, label=label)
        axes.set_title(f"{row.algo}, {row.task.rpartition(':')[2]}", fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in places[len(begun) :]:
        axes.set_visible(False)
    places[0].legend(fontsize=7)
    figure.supxlabel("steps", fontsize=8)
    figure.supylabel("return, mean of the last 100 training episodes", fontsize=8)
    figure.savefig(path, dpi=110)
