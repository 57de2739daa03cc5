"""Trains rows of `thresholds.toml`, three seeds each, through the command line, and judges them by greedy episodes.

    python -m benchmarks.learning.run pendulum cartpole-preset     # those rows
    python -m benchmarks.learning.run pendulum-non-blocking        # a row without lock step
    python -m benchmarks.learning.run --all                        # every row, in lock step and non-blocking
    python -m benchmarks.learning.run pendulum -- --lr 1e-3        # further flags for `penstock train`
    python -m benchmarks.learning.run dqn-cartpole dqn-cartpole-overlapping apex-cartpole --alternate    # to compare

Writes `results/<row>.json` and `results/<row>.png` (return over steps). Ends with 1 if a row misses its threshold.

- A row with `judged = "best"` is judged by the checkpoint that was best in the evaluations during the run.
- A row that evaluates during the run shows these evaluations. It also shows the seconds from the start of the command
  until one of them reached the row's threshold.
"""

import argparse
import math
import statistics
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from benchmarks.learning.clock import Clock
from benchmarks.record import ROOT, destination, write
from benchmarks.runs import Curve, curve, evaluate, train
from penstock.metrics.report import EVAL_RETURN, RETURN

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
EPISODES = 100
JUDGE_SEED = 1_000_000
"""Seed of the episodes that judge a run. They are not the episodes by which the run has found its best checkpoint."""
JUDGES = {
    name: f"penstock eval RUN --episodes {EPISODES} --seed {JUDGE_SEED} --checkpoint {name} --json"
    for name in ("latest", "best")
}
NON_BLOCKING = ("--sync_mode", "non_blocking")


def verdict(row: dict[str, Any], returns: Mapping[int, float]) -> list[str]:
    """A line for each threshold of a row that is missed, by seed -> return."""
    least, most = row.get("each", -math.inf), row.get("below", math.inf)
    lines = [f"seed {seed}: {value:.1f} < {least}" for seed, value in returns.items() if value < least]
    lines += [f"seed {seed}: {value:.1f} >= {most}" for seed, value in returns.items() if value >= most]
    if "mean" in row and (mean := statistics.mean(returns.values())) < row["mean"]:
        lines.append(f"mean: {mean:.1f} < {row['mean']}")
    return lines


class Learned(NamedTuple):
    """One seed of a row."""

    line: Curve
    entry: dict[str, Any]
    """For the committed result."""


def learn(name: str, row: dict[str, Any], seed: int, extra: list[str]) -> Learned:
    """Train and judge one seed of a row."""
    arguments = [*row["arguments"], *extra, "--seed", str(seed)]
    log_dir = ROOT / "build/learning" / name
    log_dir.mkdir(parents=True, exist_ok=True)
    with Clock(log_dir, bound(row)) as clock:
        run = train(log_dir, arguments)
    line = curve(run, metric(row))
    judged = evaluate(run, EPISODES, row.get("judged", "latest"), seed=JUDGE_SEED)
    entry = {"seed": seed, "steps": line.steps[-1], "seconds": round(clock.seconds, 1)}
    reached = ""
    if metric(row) == EVAL_RETURN:
        entry["reached_s"] = None if clock.reached_s is None else round(clock.reached_s, 1)
        reached = f", {bound(row)} reached after {entry['reached_s']} s"
    print(f"{name} seed {seed}: {judged['mean_return']:.1f} in {clock.seconds:.0f} s{reached}", flush=True)
    # `entry` comes last: both hold a seed, and the seed of the run counts.
    return Learned(line, judged | entry)


def bound(row: dict[str, Any]) -> float:
    """The return that every seed is to reach, or to stay below; or that the mean of all is to reach."""
    value: float = next(row[name] for name in ("each", "below", "mean") if name in row)
    return value


def metric(row: dict[str, Any]) -> str:
    """The metric of a row's curve: the evaluations during the run, if there are any."""
    return EVAL_RETURN if "--eval_interval" in row["arguments"] else RETURN


def in_both_modes(table: dict[str, dict[str, Any]]) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Name -> row and more flags: every row of the table; for rows of both modes also `<row>-non-blocking`."""
    both = [name for name, row in table.items() if row.get("both_modes", True)]
    lock_step: dict[str, tuple[dict[str, Any], list[str]]] = {name: (row, []) for name, row in table.items()}
    return lock_step | {f"{name}-non-blocking": (table[name], [*NON_BLOCKING]) for name in both}


def preset_of(row: dict[str, Any]) -> str | None:
    """The preset that a row is trained with; ``None``: it shows the defaults, or the settings in its arguments."""
    words = row["arguments"]
    return words[words.index("--preset") + 1] if "--preset" in words else None


def conclude(name: str, row: dict[str, Any], extra: list[str], found: list[Learned]) -> list[str]:
    """Write the results of all seeds of a row. Returns what falls short."""
    short = verdict(row, {entry["seed"]: float(entry["mean_return"]) for _, entry in found})
    result = {
        "command": " ".join(["penstock train", *row["arguments"], *extra, "--seed {0,1,2}"]),
        "preset": preset_of(row),
        "judge": JUDGES[row.get("judged", "latest")],
        "thresholds": {key: row[key] for key in ("each", "mean", "below") if key in row},
        "holds": not short,
        "mean_return": round(statistics.mean(float(entry["mean_return"]) for _, entry in found), 2),
        "seeds": [entry for _, entry in found],
    }
    write(HERE / "results" / f"{name}.json", result)
    draw(HERE / "results" / f"{name}.png", result["command"], row, [line for line, _ in found])
    return [f"{name}: {line}" for line in short]


def draw(path: Path, command: str, row: dict[str, Any], curves: list[Curve]) -> None:
    """Return over steps, with a line for each seed, and the command as the title."""
    shown = "greedy evaluations" if metric(row) == EVAL_RETURN else "the last 100 training episodes"
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for seed, line in zip(SEEDS, curves, strict=True):
        axes.plot(line.steps, line.values, label=f"seed {seed}")
    axes.axhline(bound(row), color="grey", linestyle=":", label=f"{bound(row)}")
    axes.set(xlabel="steps", ylabel=f"return, mean of {shown}")
    axes.set_title(command, fontsize=7, wrap=True)
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Learn the rows that were asked for."""
    table: dict[str, dict[str, Any]] = tomllib.loads((HERE / "thresholds.toml").read_text())
    words = sys.argv[1:]
    words, extra = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help=", ".join(in_both_modes(table)))
    parser.add_argument("--all", action="store_true", help="every row, in lock step and non-blocking")
    parser.add_argument("--alternate", action="store_true", help="seed by seed, not row by row, to compare seconds")
    args = parser.parse_args(words)
    rows = in_both_modes(table)
    unknown = sorted(set(args.rows) - set(rows))
    if unknown or not (args.rows or args.all):
        parser.error(f"unknown rows: {', '.join(unknown)}" if unknown else "name rows, or --all")
    asked = {name: (rows[name][0], [*extra, *rows[name][1]]) for name in (rows if args.all else args.rows)}
    for name in asked:
        destination(HERE / "results" / f"{name}.json")
    found: dict[str, list[Learned]] = {name: [] for name in asked}
    turns = [(name, seed) for name in asked for seed in SEEDS]
    short = []
    for name, seed in sorted(turns, key=lambda turn: turn[1]) if args.alternate else turns:
        row, flags = asked[name]
        found[name].append(learn(name, row, seed, flags))
        if len(found[name]) == len(SEEDS):
            short += conclude(name, row, flags, found[name])
    print("\n".join(short) or "every threshold is held")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
