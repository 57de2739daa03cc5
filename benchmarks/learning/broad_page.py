"""The page of `benchmarks.learning.broad`: a table and curves of the runs that are there, and what is still open.

Trains nothing. An interval is a percentile bootstrap of the mean over seeds; with one or two seeds there is none.
"""

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
FEWEST = 3
"""Seeds from which an interval says more than the values themselves."""
COLUMNS = 4
COLOR = {OURS: COLORS["penstock"], PEER: COLORS["peer"]}
HEAD = """# Every algorithm at its defaults, on tasks that nobody tuned for

`make learn-broad` trains and writes this page.

- A figure is the mean over seeds of the return of 100 greedy episodes at the end. Behind it: the values of two seeds,
  or the 95 % interval of three, by bootstrap over the seeds, which are few.
- **behind**: ours plays worse by the means over the seeds that both sides have. These are named. Reasons:
  [PPO](../../../../docs/algorithms/ppo-trials.md#batches-of-fewer-rows), [A2C](../../../../docs/algorithms/a2c.md).
- Both sides are asked for the same number of steps, each at its own defaults, on one torch thread. A last batch is
  whole, so more steps are played: in brackets, those of ours. A batch of PPO and APPO has 16,384 rows, one of
  stable-baselines3's PPO 2,048, so that ours plays up to 16,383 steps more, and the peer up to 2,047.

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
    outdated: tuple[str, ...]
    """What is said of each result of other settings than today's. Such a run is open."""

    def done(self) -> int:
        """How many of them are there."""
        return sum(map(len, self.found.values()))

    def behind(self) -> list[int]:
        """The seeds that both sides have, if ours plays worse than the peer's by the means over them. Else none."""
        ours, theirs = (
            {each["seed"]: each["mean_return"] for each in self.found.get(side, [])} for side in (OURS, PEER)
        )
        shared = sorted(ours.keys() & theirs.keys())
        return shared if sum(ours[seed] for seed in shared) < sum(theirs[seed] for seed in shared) else []


def rows(planned: Sequence[Run]) -> list[Row]:
    """One row for each algorithm on each task, in the order of the first runs."""
    found: dict[tuple[str, str], Row] = {}
    for run in planned:
        new = Row(run.task, run.algo, run.timesteps, {}, 0, ())
        row = found.get((run.task, run.algo), new)
        results = row.found.setdefault(run.side, [])
        if result := run.result():
            results.append(result)
        changed = ", ".join(f"{name} was {before} and is {now}" for name, (before, now) in run.outdated().items())
        outdated = (f"{run.algo} on {run.task}, {run.side}, seed {run.seed}: {changed}",) if changed else ()
        found[run.task, run.algo] = row._replace(planned=row.planned + 1, outdated=row.outdated + outdated)
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
        if seeds := row.behind():
            sides[0] += f" **behind** on seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        results = [result for side in row.found.values() for result in side]
        commits = ", ".join(f"`{commit[:7]}`" for commit in sorted({result["commit"] for result in results}))
        last = max(result["date"] for result in results)
        cells = [row.task, row.algo, _steps(row), *sides, f"{row.done()} of {row.planned}", last, commits]
        lines.append(f"| {' | '.join(cells)} |")
    unseen = [f"{row.algo} on {row.task}" for row in listed if not row.done()]
    done, planned = sum(row.done() for row in listed), sum(row.planned for row in listed)
    lines += ["", f"{done} of {planned} runs are there."]
    if unseen:
        lines += ["", f"Not begun: {', '.join(unseen)}."]
    if outdated := [line for row in listed for line in row.outdated]:
        lines += ["", "Open again, because a setting has changed since:", "", *(f"- {line}" for line in outdated)]
    return HEAD + "\n".join(lines) + "\n\n![Return over steps](curves.png)\n"


def write_page(folder: Path, planned: Sequence[Run]) -> None:
    """Write ``README.md`` and ``curves.png`` into a folder."""
    listed = rows(planned)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(text(listed), "utf-8")
    begun = [row for row in listed if row.done()]
    if begun:
        _draw(folder / "curves.png", begun)


def _steps(row: Row) -> str:
    """The steps that were asked for, and those that ours has really played, if they are more."""
    played = sorted({result["curve"]["steps"][-1] for result in row.found.get(OURS, [])} - {row.timesteps})
    return f"{row.timesteps:,}" + (f" ({', '.join(f'{steps:,}' for steps in played)})" if played else "")


def _cell(results: Sequence[dict[str, Any]]) -> str:
    if not results:
        return "open"
    sample = np.array([result["mean_return"] for result in results])
    mean = float(sample.mean())
    if len(sample) == 1:
        return f"{mean:.1f}"
    if len(sample) < FEWEST:
        return f"{mean:.1f} ({', '.join(f'{value:.1f}' for value in sample)})"
    found: Estimate = estimate(mean, sample, RESAMPLES, np.random.default_rng(0))
    return f"{mean:.1f} [{found.low:.1f}, {found.high:.1f}]"


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
