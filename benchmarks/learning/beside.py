"""Ours beside stable-baselines3's on one task: one picture, the same seeds for both.

    python -m benchmarks.learning.beside lunarlander-sac --seeds 0 1 2     # trains both, one after the other
    python -m benchmarks.learning.beside halfcheetah-sac --ours RUN ... --theirs LOG ...   # draws what was trained

- `pairs.py` lists the pairs and their settings.
- A RUN is a run folder. A LOG holds the line that the peer's script prints. In place of either, an earlier result of
  this script stands for all seeds in it.
- Both sides have the same seeds. If only one side is given, the other is trained with its seeds.
- `--pinned` says that both sides were trained on one core each, by `taskset -c CORE` in front of the command.

Curves are the mean return of the last 100 training episodes. After each run greedy episodes are played. Writes
`results/<pair>.json` and `.png`. Ends with 1 if ours plays worse at the end, or is not as many times as fast as the
pair asks for, both by the mean over the seeds. Seconds compare only if both sides had the same machine to themselves.
HalfCheetah needs `penstock[mujoco]`, LunarLander `penstock[box2d]`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.bars import Bar
from benchmarks.learning.pairs import OURS, PAIRS, PEER, Pair
from benchmarks.learning.run import HERE
from benchmarks.peers.install import HERE as PEERS
from benchmarks.peers.install import python_of
from benchmarks.peers.run import parse
from benchmarks.plots import COLORS
from benchmarks.record import ROOT, destination, write
from benchmarks.runs import Curve, curve, train
from penstock.metrics.report import EVAL_RETURN, RETURN
from penstock.saved_runs.run_folder import RunFolder

EVAL_STD = "eval/return_std"
POINTS = 150
"""Largest number of points of a curve in a result."""


class Trained(NamedTuple):
    """One run of either side: one seed."""

    seed: int
    line: Curve
    mean_return: float
    """Mean return of the greedy episodes at the end."""
    std_return: float | None
    """Deviation of the returns of these episodes, if it is known."""

    def entry(self) -> dict[str, Any]:
        """For the committed result."""
        last = round(self.line.values[-1], 1)
        seconds = round(self.line.seconds[-1])
        spread = {} if self.std_return is None else {"std_return": round(self.std_return, 1)}
        mean = {"mean_return": round(self.mean_return, 1)}
        every = -(-len(self.line.steps) // POINTS)
        # Counts from the end, so that the last point is among them.
        names = ("steps", "seconds", "returns")
        kept = {name: part[::-1][::every][::-1] for name, part in zip(names, self.line, strict=True)}
        return {"seed": self.seed, **mean, **spread, "last_100": last, "seconds": seconds, "curve": kept}


def of_entry(entry: dict[str, Any]) -> Trained:
    """Read an entry of `Trained.entry`, from an earlier result or from the line of stable-baselines3's script."""
    line = Curve(*(entry["curve"][part] for part in ("steps", "seconds", "returns")))
    return Trained(int(entry["seed"]), line, entry["mean_return"], entry.get("std_return"))


def of_run(pair: Pair, run: Path) -> Trained:
    """What a run folder holds.

    Raises:
        ValueError: it was trained with other settings than those of the pair, or has not ended.
    """
    # Not the file itself: a setting that has no value does not stand there. As JSON, because the pair's are, too.
    config = json.loads(json.dumps(RunFolder(run).read_config().values()))
    wanted = pair.settings()[OURS]
    if other := {name: config[name] for name, value in wanted.items() if config[name] != value}:
        raise ValueError(f"{run} was not trained as {' '.join(pair.our_words())} says: {other}")
    means, stds = curve(run, EVAL_RETURN).values, curve(run, EVAL_STD).values
    if not means:
        raise ValueError(f"{run} has not ended: it holds no greedy episodes")
    return Trained(int(config["seed"]), curve(run, RETURN), means[-1], stds[-1] if stds else None)


def of_output(pair: Pair, output: str) -> Trained:
    """What stable-baselines3's script printed.

    Raises:
        ValueError: it printed no result, or one of other settings than those of the pair. Not every log names all.
    """
    result = parse(output)
    if other := {name: result[name] for name, value in pair.theirs.items() if result.get(name, value) != value}:
        raise ValueError(f"seed {result['seed']} of stable-baselines3 was trained with other settings: {other}")
    return of_entry(result)


def of_ours(pair: Pair, path: Path) -> list[Trained]:
    """What a run folder holds, or all seeds of ours in an earlier result."""
    return _earlier(pair, path, OURS) if path.suffix == ".json" else [of_run(pair, path)]


def of_theirs(pair: Pair, path: Path) -> list[Trained]:
    """What stable-baselines3's script printed into a file, or all seeds of it in an earlier result."""
    return _earlier(pair, path, PEER) if path.suffix == ".json" else [of_output(pair, path.read_text("utf-8"))]


def _earlier(pair: Pair, path: Path, side: str) -> list[Trained]:
    """What an earlier result holds of one side.

    Raises:
        ValueError: it is of other settings than those of the pair. Not every result names them.
    """
    result = json.loads(path.read_text("utf-8"))
    wanted = pair.settings()[side]
    held = result.get("settings", {side: {}})[side]
    if other := {name: value for name, value in held.items() if wanted.get(name) != value}:
        raise ValueError(f"{path} holds {side} trained with other settings: {other}")
    return [of_entry(entry) for entry in result[side]]


def train_ours(name: str, pair: Pair, seed: int) -> Trained:
    """Train with penstock, into a folder ``build/learning/<name>``."""
    return of_run(pair, train(ROOT / "build/learning" / name, [*pair.our_words(), "--seed", str(seed)]))


def train_theirs(pair: Pair, seed: int) -> Trained:
    """Train with stable-baselines3."""
    command = [python_of(pair.environment), PEERS / pair.script, *pair.their_words(), "--seed", str(seed)]
    return of_output(pair, subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compared(pair: Pair, found: dict[str, Sequence[Trained]], *, pinned: bool) -> dict[str, Any]:
    """The committed result of both sides.

    Raises:
        ValueError: one has other seeds than the other.
    """
    seeds = {name: sorted(run.seed for run in runs) for name, runs in found.items()}
    if seeds[OURS] != seeds[PEER]:
        raise ValueError(f"both need the same seeds: {seeds}")
    core = ["taskset -c CORE"] if pinned else []
    means = {name: [run.mean_return for run in runs] for name, runs in found.items()}
    seconds = {name: statistics.mean(run.line.seconds[-1] for run in runs) for name, runs in found.items()}
    speed = Bar("times as fast", seconds[PEER] / seconds[OURS], pair.times)
    return {
        "commands": [
            " ".join([*core, "penstock train", *pair.our_words(), "--seed SEED"]),
            " ".join([*core, f"python benchmarks/peers/{pair.script}", *pair.their_words(), "--seed SEED"]),
        ],
        "settings": pair.settings(),
        "each_on": where(pinned=pinned),
        "holds": statistics.mean(means[OURS]) >= statistics.mean(means[PEER]) and speed.holds,
        "speed": speed.entry(),
        "mean_return": {name: round(statistics.mean(values), 1) for name, values in means.items()},
        "range_over_seeds": {name: [round(min(values), 1), round(max(values), 1)] for name, values in means.items()},
        "std_over_seeds": {
            name: round(statistics.stdev(values), 1) if len(values) > 1 else None for name, values in means.items()
        },
        **{name: [run.entry() for run in runs] for name, runs in found.items()},
    }


def where(*, pinned: bool) -> str:
    """The cores that each run had, as far as is known."""
    return "one core" if pinned else "one torch thread"


def draw(path: Path, pair: Pair, found: dict[str, Sequence[Trained]], *, pinned: bool) -> None:
    """Return over steps, a line a seed; over hours as well, where each had a core of its own."""
    figure = Figure(figsize=(9, 4) if pinned else (6, 4), layout="constrained")
    by_steps, *by_hours = figure.subplots(1, 1 + pinned, sharey=True, squeeze=False)[0]
    _lines(by_steps, found, lambda run: run.line.steps)
    by_steps.set(xlabel="steps", ylabel="return, mean of the last 100 training episodes")
    by_steps.legend()
    for axes in by_hours:
        _lines(axes, found, lambda run: [second / 3600 for second in run.line.seconds])
        axes.set(xlabel="hours")
    figure.suptitle(f"{pair.title}; {where(pinned=pinned)} each", fontsize=9)
    figure.savefig(path, dpi=120)


def _lines(axes: Axes, found: dict[str, Sequence[Trained]], over: Any) -> None:
    """A line for each seed of either side; ``over`` gives a run's places on the horizontal axis."""
    for (name, runs), color in zip(found.items(), (COLORS["penstock"], COLORS["peer"]), strict=True):
        for number, run in enumerate(runs):
            axes.plot(over(run), run.line.values, color=color, label=name if number == 0 else None)


def main() -> int:
    """Train or read, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", choices=PAIRS, help=", ".join(PAIRS), metavar="PAIR")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="what is trained where nothing is read")
    parser.add_argument("--ours", type=Path, nargs="+", default=[], help="run folders, or a result")
    parser.add_argument(
        "--theirs", type=Path, nargs="+", default=[], help="what the peer's script printed, or a result"
    )
    parser.add_argument("--pinned", action="store_true", help="each was trained on one core alone, and so is this")
    args = parser.parse_args()
    pair = PAIRS[args.pair]
    path = destination(HERE / f"results/{args.pair}.json")
    if args.pinned and not (args.ours and args.theirs) and len(os.sched_getaffinity(0)) > 1:
        parser.error("--pinned: what is trained here has more than one core; put taskset -c CORE in front")
    ours = [run for path in args.ours for run in of_ours(pair, path)]
    theirs = [run for path in args.theirs for run in of_theirs(pair, path)]
    seeds = [run.seed for run in ours or theirs] or args.seeds
    ours = ours or [train_ours(args.pair, pair, seed) for seed in seeds]
    theirs = theirs or [train_theirs(pair, seed) for seed in seeds]
    found = {OURS: ours, PEER: theirs}
    result = compared(pair, found, pinned=args.pinned)
    write(path, result)
    draw(path.with_suffix(".png"), pair, found, pinned=args.pinned)
    print("greedy return at the end:", ", ".join(f"{name} {mean:.0f}" for name, mean in result["mean_return"].items()))
    print(f"times as fast: {result['speed']['value']:.2f} (at least {pair.times:g})")
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
