"""Trains rows of `thresholds.toml`, three seeds each, through the command line, and judges them by greedy episodes.

    python -m benchmarks.learning.run pendulum cartpole-preset     # those rows
    python -m benchmarks.learning.run --all                        # every row, in lock step and non-blocking
    python -m benchmarks.learning.run pendulum -- --lr 1e-3        # further flags for `penstock train`

Writes `results/<row>.json` and `results/<row>.png` (return over steps), and ends with 1 if a row misses its threshold.
"""

import argparse
import statistics
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.record import ROOT, write
from benchmarks.runs import Curve, curve, evaluate, train
from penstock.metrics.report import RETURN

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
EPISODES = 100
NON_BLOCKING = ("--sync_mode", "non_blocking")


def verdict(row: dict[str, Any], returns: list[float]) -> list[str]:
    """What falls short of a row's thresholds, a line each; empty if nothing does."""
    lines = [f"seed {seed}: {value:.1f} < {row['each']}" for seed, value in enumerate(returns) if value < row["each"]]
    if "mean" in row and statistics.mean(returns) < row["mean"]:
        lines.append(f"mean: {statistics.mean(returns):.1f} < {row['mean']}")
    return lines


def learn(name: str, row: dict[str, Any], extra: list[str]) -> list[str]:
    """Train and judge one row, and write what came out; returns what falls short."""
    arguments = [*row["arguments"], *extra]
    seeds, curves = [], []
    for seed in SEEDS:
        begun = time.perf_counter()
        run = train(ROOT / "build/learning" / name, [*arguments, "--seed", str(seed)])
        seconds = time.perf_counter() - begun
        judged = evaluate(run, EPISODES)
        curves.append(curve(run, RETURN))
        seeds.append({"seed": seed, "steps": curves[-1].steps[-1], "seconds": round(seconds, 1), **judged})
        print(f"{name} seed {seed}: {judged['mean_return']:.1f} in {seconds:.0f} s", flush=True)
    short = verdict(row, [float(entry["mean_return"]) for entry in seeds])
    result = {
        "command": " ".join(["penstock train", *arguments, "--seed {0,1,2}"]),
        "judge": f"penstock eval RUN --episodes {EPISODES} --json",
        "thresholds": {key: row[key] for key in ("each", "mean") if key in row},
        "holds": not short,
        "mean_return": round(statistics.mean(float(entry["mean_return"]) for entry in seeds), 2),
        "seeds": seeds,
    }
    write(HERE / "results" / f"{name}.json", result)
    draw(HERE / "results" / f"{name}.png", result["command"], row["each"], curves)
    return [f"{name}: {line}" for line in short]


def draw(path: Path, command: str, threshold: float, curves: list[Curve]) -> None:
    """Mean return of the last 100 training episodes over steps, a line a seed, under the command that made it."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for seed, line in zip(SEEDS, curves, strict=True):
        axes.plot(line.steps, line.values, label=f"seed {seed}")
    axes.axhline(threshold, color="grey", linestyle=":", label=f"{threshold}")
    axes.set(xlabel="steps", ylabel="return, mean of the last 100 training episodes")
    axes.set_title(command, fontsize=7)
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Learn the rows that were asked for."""
    table: dict[str, dict[str, Any]] = tomllib.loads((HERE / "thresholds.toml").read_text())
    words = sys.argv[1:]
    words, extra = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help=", ".join(table))
    parser.add_argument("--all", action="store_true", help="every row, in lock step and non-blocking")
    args = parser.parse_args(words)
    unknown = sorted(set(args.rows) - set(table))
    if unknown or not (args.rows or args.all):
        parser.error(f"unknown rows: {', '.join(unknown)}" if unknown else "name rows, or --all")
    short = []
    for name in table if args.all else args.rows:
        short += learn(name, table[name], extra)
        if args.all:
            short += learn(f"{name}-non-blocking", table[name], [*extra, *NON_BLOCKING])
    print("\n".join(short) or "every threshold is held")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
