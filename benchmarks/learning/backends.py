"""Whether the fast paths learn as the plain one does: rows of `thresholds.toml` on every backend, five seeds each.

    python -m benchmarks.learning.backends                       # the Pendulum and CartPole presets, about 15 minutes
    python -m benchmarks.learning.backends pendulum-preset       # one row

Each run is judged by its row's threshold. Curves are return over steps, compared at ten places of the run. `overlap` is
the share of places where the range over a fast path's seeds meets the range over eager's seeds. Writes
`results/backends-<row>.json` and `.png`. Ends with 1 if a run misses its threshold, or if the ranges meet at fewer than
nine places of ten. Does not compare single updates: `tests/updates` does, each from the same state. Whole runs of any
two backends diverge within a thousand updates.
"""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.learning.run import EPISODES, HERE, verdict
from benchmarks.record import ROOT, destination, write
from benchmarks.runs import Curve, curve, evaluate, train
from penstock.metrics.report import RETURN
from penstock.types import Array

BACKENDS = ("eager", "compiled", "fused")
PLACES = 10
LEAST_OVERLAP = 0.9


def at_places(curves: Sequence[Curve], steps: Array) -> Array:
    """Each curve's value at some steps: ``[curves, places]``."""
    return np.array([np.interp(steps, line.steps, line.values) for line in curves])


def overlap(curves: Array, others: Array) -> float:
    """Share of places where the ranges over the seeds, ``[seeds, places]`` each, meet."""
    meets = (curves.min(axis=0) <= others.max(axis=0)) & (others.min(axis=0) <= curves.max(axis=0))
    return float(meets.mean())


def learn(name: str, row: dict[str, Any], seeds: Sequence[int]) -> list[str]:
    """Train and judge one row on every backend, and write the result. Returns what falls short."""
    curves: dict[str, list[Curve]] = {}
    returns: dict[str, list[float]] = {}
    for backend in BACKENDS:
        arguments = [*row["arguments"], "--backend", backend]
        runs = [train(ROOT / "build/learning" / name, [*arguments, "--seed", str(seed)]) for seed in seeds]
        curves[backend] = [curve(run, RETURN) for run in runs]
        returns[backend] = [float(evaluate(run, EPISODES)["mean_return"]) for run in runs]
        print(f"{name} {backend}: {returns[backend]}", flush=True)
    last = min(line.steps[-1] for lines in curves.values() for line in lines)
    steps = np.linspace(0, last, PLACES + 1)[1:]
    ranges = {backend: at_places(lines, steps) for backend, lines in curves.items()}
    overlaps = {backend: overlap(ranges[backend], ranges["eager"]) for backend in BACKENDS[1:]}
    command = " ".join(["penstock train", *row["arguments"], f"--backend B --seed {{{','.join(map(str, seeds))}}}"])
    short = [f"{backend} {line}" for backend in BACKENDS for line in verdict(row, returns[backend])]
    short += [f"{backend} overlaps {share:.0%}" for backend, share in overlaps.items() if share < LEAST_OVERLAP]
    result = {"command": command, "overlap": overlaps, "holds": not short, "mean_return": returns}
    write(HERE / "results" / f"backends-{name}.json", result)
    draw(name, command, steps, ranges)
    return [f"{name}: {line}" for line in short]


def draw(name: str, command: str, steps: Array, ranges: dict[str, Array]) -> None:
    """Median and range over the seeds, with a band for each backend."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for backend, values in ranges.items():
        (line,) = axes.plot(steps, np.median(values, axis=0), label=backend)
        axes.fill_between(steps, values.min(axis=0), values.max(axis=0), alpha=0.2, color=line.get_color(), linewidth=0)
    axes.set(xlabel="steps", ylabel="return, mean of the last 100 training episodes")
    axes.set_title(command, fontsize=7)
    axes.legend()
    figure.savefig(HERE / "results" / f"backends-{name}.png", dpi=120)


def main() -> int:
    """Compare the rows that were asked for."""
    table: dict[str, dict[str, Any]] = tomllib.loads((HERE / "thresholds.toml").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=["pendulum-preset", "cartpole-preset"], help=", ".join(table))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    args = parser.parse_args()
    if unknown := sorted(set(args.rows) - set(table)):
        parser.error(f"unknown rows: {', '.join(unknown)}")
    for name in args.rows:
        destination(HERE / "results" / f"backends-{name}.json")
    short = [line for name in args.rows for line in learn(name, table[name], args.seeds)]
    print("\n".join(short) or "every threshold is held, and the curves overlap")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
