"""Checks that settings that should not change learning do not: rows of `thresholds.toml` under several values of one.

    python -m benchmarks.learning.alike backend                  # presets of PPO, SAC and DQN, about 40 minutes
    python -m benchmarks.learning.alike precision                # the Pendulum preset and a picture, about 20 minutes
    python -m benchmarks.learning.alike backend pendulum-preset  # one row

- `backend`: the compiled and the fused update beside the eager one, five seeds each.
- `precision`: layers in bfloat16 beside float32, both eager, three seeds each.

Each run is judged by its row's threshold, and by the checkpoint that `run.py` judges. Curves are return over steps; if
the row evaluates during a run, of these evaluations. They are compared at ten places of the run. `overlap` is the share
of places where the range over the seeds meets that of the first value. Ranges meet, too, where they are apart by at
most 1 % of what the first value's curves span: where all seeds end at the best return, ranges are no wider than that.
Writes `results/backends-<row>.json` or `results/precisions-<row>.json`, with the curves, and `.png`. Ends with 1 if a
run misses its threshold, or if the ranges meet at fewer than nine places of ten. Does not compare single updates:
`tests/updates` and `tests/algorithms` do, each from the same state. Whole runs of any two values diverge within a
thousand updates.
"""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.learning.run import EPISODES, HERE, JUDGE_SEED, metric, verdict
from benchmarks.record import ROOT, destination, write
from benchmarks.runs import Curve, curve, evaluate, train
from penstock.metrics.report import EVAL_RETURN, RETURN
from penstock.types import Array

PLACES = 10
LEAST_OVERLAP = 0.9
APART = 0.01
"""Distance of two ranges that still meet, as a share of what the curves of the first value span."""
EPISODES_OF = {RETURN: "the last 100 training episodes", EVAL_RETURN: "greedy episodes during the run"}


class Setting(NamedTuple):
    """A setting whose values should learn alike."""

    flag: str
    values: tuple[str, ...]
    """The others are compared with the first one."""
    rows: tuple[str, ...]
    seeds: int
    beside: tuple[str, ...] = ()
    """Flags of all its runs."""


SETTINGS = (
    Setting(
        "backend",
        ("eager", "compiled", "fused"),
        ("pendulum-preset", "cartpole-preset", "sac-pendulum", "dqn-cartpole"),
        5,
    ),
    Setting("precision", ("float32", "bfloat16"), ("pendulum-preset", "picture"), 3, ("--backend", "eager")),
)


def at_places(curves: Sequence[Curve], steps: Array) -> Array:
    """Each curve's value at some steps: ``[curves, places]``."""
    return np.array([np.interp(steps, line.steps, line.values) for line in curves])


def overlap(curves: Array, others: Array) -> float:
    """Share of places where the ranges over the seeds, ``[seeds, places]`` each, meet those of others."""
    gaps = np.maximum(curves.min(axis=0) - others.max(axis=0), others.min(axis=0) - curves.max(axis=0))
    return float((gaps <= APART * np.ptp(others)).mean())


def learn(setting: Setting, name: str, row: dict[str, Any], seeds: Sequence[int]) -> list[str]:
    """Train and judge one row with every value, and write the result. Returns what falls short."""
    curves: dict[str, list[Curve]] = {}
    returns: dict[str, list[float]] = {}
    given = [*row["arguments"], *setting.beside]
    for value in setting.values:
        arguments = [*given, f"--{setting.flag}", value]
        runs = [train(ROOT / "build/learning" / name, [*arguments, "--seed", str(seed)]) for seed in seeds]
        curves[value] = [curve(run, metric(row)) for run in runs]
        judged = row.get("judged", "latest")
        returns[value] = [float(evaluate(run, EPISODES, judged, seed=JUDGE_SEED)["mean_return"]) for run in runs]
        print(f"{name} {value}: {returns[value]}", flush=True)
    last = min(line.steps[-1] for lines in curves.values() for line in lines)
    steps = np.linspace(0, last, PLACES + 1)[1:]
    ranges = {value: at_places(lines, steps) for value, lines in curves.items()}
    first, *others = setting.values
    overlaps = {value: overlap(ranges[value], ranges[first]) for value in others}
    command = " ".join(["penstock train", *given, f"--{setting.flag} X --seed {{{','.join(map(str, seeds))}}}"])
    short = [
        f"{value} {line}"
        for value in setting.values
        for line in verdict(row, dict(zip(seeds, returns[value], strict=True)))
    ]
    short += [f"{value} overlaps {share:.0%}" for value, share in overlaps.items() if share < LEAST_OVERLAP]
    result = {
        "command": command,
        "overlap": overlaps,
        "holds": not short,
        "mean_return": returns,
        "steps": steps.tolist(),
        "curves": {value: lines.round(2).tolist() for value, lines in ranges.items()},
    }
    write(HERE / "results" / f"{setting.flag}s-{name}.json", result)
    draw(f"{setting.flag}s-{name}", command, metric(row), steps, ranges)
    return [f"{name}: {line}" for line in short]


def draw(name: str, command: str, of: str, steps: Array, ranges: dict[str, Array]) -> None:
    """Median and range over the seeds, with a band for each value."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for label, values in ranges.items():
        (line,) = axes.plot(steps, np.median(values, axis=0), label=label)
        axes.fill_between(steps, values.min(axis=0), values.max(axis=0), alpha=0.2, color=line.get_color(), linewidth=0)
    axes.set(xlabel="steps", ylabel=f"mean return of {EPISODES_OF[of]}")
    axes.set_title(command, fontsize=7, wrap=True)
    axes.legend()
    figure.savefig(HERE / "results" / f"{name}.png", dpi=120)


def main() -> int:
    """Compare the rows that were asked for."""
    table: dict[str, dict[str, Any]] = tomllib.loads((HERE / "thresholds.toml").read_text())
    settings = {setting.flag: setting for setting in SETTINGS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=settings)
    parser.add_argument("rows", nargs="*", help=", ".join(table))
    parser.add_argument("--seeds", type=int, nargs="+")
    args = parser.parse_args()
    if unknown := sorted(set(args.rows) - set(table)):
        parser.error(f"unknown rows: {', '.join(unknown)}")
    setting = settings[args.setting]
    rows, seeds = args.rows or setting.rows, args.seeds or range(setting.seeds)
    for name in rows:
        destination(HERE / "results" / f"{setting.flag}s-{name}.json")
    short = [line for name in rows for line in learn(setting, name, table[name], seeds)]
    print("\n".join(short) or "every threshold is held, and the curves overlap")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
