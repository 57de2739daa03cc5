"""SAC on HalfCheetah-v5 beside stable-baselines3's from the same machine: one picture, the same seeds for both.

    python -m benchmarks.learning.beside --seeds 0 1 2       # trains both, one after the other: hours
    python -m benchmarks.learning.beside --ours RUN ... --theirs LOG ...     # draws what was trained before

A RUN is a run folder of the preset `halfcheetah`, a LOG holds the line that `peers/sb3_sac.py` prints; an earlier
result of this script, in place of either, gives the seeds that it holds. Both sides have the same seeds, and each the
settings that are given here; where one side alone is given, the other is trained with its seeds. `--pinned` says of
both that they were trained on one core each, by `taskset -c CORE` in front of the command.

Both curves are the mean return of the last 100 training episodes; behind each run ten greedy episodes are played.
Writes `results/halfcheetah-sac.json` and `.png`, and ends with 1 if ours plays worse at the end, by the mean over the
seeds. Needs `penstock[mujoco]`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from benchmarks.learning.run import HERE
from benchmarks.peers.install import HERE as PEERS
from benchmarks.peers.install import python_of
from benchmarks.peers.run import parse
from benchmarks.plots import COLORS
from benchmarks.record import ROOT, destination, write
from benchmarks.runs import Curve, curve, flags, train
from penstock.config.sources import preset_path
from penstock.metrics.report import EVAL_RETURN, RETURN

EVAL_STD = "eval/return_std"
POINTS = 150
"""Of a curve that is written down, at most."""
PRESET = tomllib.loads(preset_path("halfcheetah").read_text("utf-8"))
PEER = "stable-baselines3"
HOW = {"backend": "compiled", "threads": 1, "num_workers": 1}
"""What is set of ours beyond the preset, whose two gradient steps take it no longer than the peer takes for one."""
OURS = ("--preset", "halfcheetah", *flags(HOW))
THEIR_HOW = {name: PRESET[name] for name in ("env", "timesteps", "min_rows")} | {
    "lr": 3e-4,
    "episodes": PRESET["eval_episodes"],
    "threads": 1,
}
"""Of the peer, with its own step size and its own one gradient step for each step."""
THEIRS = tuple(flags(THEIR_HOW))
SETTINGS: dict[str, dict[str, Any]] = {"penstock": PRESET | HOW, PEER: THEIR_HOW}


class Trained(NamedTuple):
    """One seed of either."""

    seed: int
    line: Curve
    mean_return: float
    """Of the greedy episodes at the end."""
    std_return: float | None
    """Of the same episodes, where it is known."""

    def entry(self) -> dict[str, Any]:
        """For the committed result."""
        last = round(self.line.values[-1], 1)
        seconds = round(self.line.seconds[-1])
        spread = {} if self.std_return is None else {"std_return": round(self.std_return, 1)}
        mean = {"mean_return": round(self.mean_return, 1)}
        every = -(-len(self.line.steps) // POINTS)
        # From the end on, so that the last point is among them.
        names = ("steps", "seconds", "returns")
        kept = {name: part[::-1][::every][::-1] for name, part in zip(names, self.line, strict=True)}
        return {"seed": self.seed, **mean, **spread, "last_100": last, "seconds": seconds, "curve": kept}


def of_entry(entry: dict[str, Any]) -> Trained:
    """What `Trained.entry` has written down, in an earlier result or in the line of stable-baselines3's script."""
    line = Curve(*(entry["curve"][part] for part in ("steps", "seconds", "returns")))
    return Trained(int(entry["seed"]), line, entry["mean_return"], entry.get("std_return"))


def of_run(run: Path) -> Trained:
    """What a run folder holds.

    Raises:
        ValueError: it was trained with other settings than those given here, or has not ended.
    """
    config = tomllib.loads((run / "config.toml").read_text("utf-8"))
    if other := {name: config[name] for name, value in (PRESET | HOW).items() if config[name] != value}:
        raise ValueError(f"{run} was not trained as {' '.join(OURS)} says: {other}")
    means, stds = curve(run, EVAL_RETURN).values, curve(run, EVAL_STD).values
    if not means:
        raise ValueError(f"{run} has not ended: it holds no greedy episodes")
    return Trained(int(config["seed"]), curve(run, RETURN), means[-1], stds[-1] if stds else None)


def of_output(output: str) -> Trained:
    """What stable-baselines3's script printed.

    Raises:
        ValueError: it printed no result, or one of other settings than those given here. Not every log names all.
    """
    result = parse(output)
    if other := {name: result[name] for name, value in THEIR_HOW.items() if result.get(name, value) != value}:
        raise ValueError(f"seed {result['seed']} of stable-baselines3 was trained with other settings: {other}")
    return of_entry(result)


def of_ours(path: Path) -> list[Trained]:
    """What a run folder holds, or all seeds of ours in an earlier result."""
    return _earlier(path, "penstock") if path.suffix == ".json" else [of_run(path)]


def of_theirs(path: Path) -> list[Trained]:
    """What stable-baselines3's script printed into a file, or all seeds of it in an earlier result."""
    return _earlier(path, PEER) if path.suffix == ".json" else [of_output(path.read_text("utf-8"))]


def _earlier(path: Path, side: str) -> list[Trained]:
    """What an earlier result holds of one side.

    Raises:
        ValueError: it is of other settings than those given here. Not every result names them.
    """
    result = json.loads(path.read_text("utf-8"))
    held = result.get("settings", SETTINGS)[side]
    if other := {name: value for name, value in held.items() if SETTINGS[side].get(name) != value}:
        raise ValueError(f"{path} holds {side} trained with other settings: {other}")
    return [of_entry(entry) for entry in result[side]]


def train_ours(seed: int) -> Trained:
    """Train with penstock."""
    return of_run(train(ROOT / "build/learning/halfcheetah", [*OURS, "--seed", str(seed)]))


def train_theirs(seed: int) -> Trained:
    """Train with stable-baselines3."""
    command = [python_of("sb3-mujoco"), PEERS / "sb3_sac.py", *THEIRS, "--seed", str(seed)]
    return of_output(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compared(found: dict[str, Sequence[Trained]], *, pinned: bool) -> dict[str, Any]:
    """The committed result of both sides.

    Raises:
        ValueError: one has other seeds than the other.
    """
    seeds = {name: sorted(run.seed for run in runs) for name, runs in found.items()}
    ours, theirs = found
    if seeds[ours] != seeds[theirs]:
        raise ValueError(f"both need the same seeds: {seeds}")
    core = ["taskset -c CORE"] if pinned else []
    means = {name: [run.mean_return for run in runs] for name, runs in found.items()}
    return {
        "commands": [
            " ".join([*core, "penstock train", *OURS, "--seed SEED"]),
            " ".join([*core, "python benchmarks/peers/sb3_sac.py", *THEIRS, "--seed SEED"]),
        ],
        "settings": SETTINGS,
        "each_on": where(pinned=pinned),
        "holds": statistics.mean(means[ours]) >= statistics.mean(means[theirs]),
        "mean_return": {name: round(statistics.mean(values), 1) for name, values in means.items()},
        "range_over_seeds": {name: [round(min(values), 1), round(max(values), 1)] for name, values in means.items()},
        "std_over_seeds": {
            name: round(statistics.stdev(values), 1) if len(values) > 1 else None for name, values in means.items()
        },
        **{name: [run.entry() for run in runs] for name, runs in found.items()},
    }


def where(*, pinned: bool) -> str:
    """What each run had of the machine, as far as is known."""
    return "one core" if pinned else "one torch thread"


def draw(path: Path, found: dict[str, Sequence[Trained]], *, pinned: bool) -> None:
    """Return over steps and over hours, a line a seed."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    by_steps, by_hours = figure.subplots(1, 2, sharey=True)
    for (name, runs), color in zip(found.items(), (COLORS["penstock"], COLORS["peer"]), strict=True):
        for number, run in enumerate(runs):
            label = name if number == 0 else None
            by_steps.plot(run.line.steps, run.line.values, color=color, label=label)
            by_hours.plot([second / 3600 for second in run.line.seconds], run.line.values, color=color, label=label)
    by_steps.set(xlabel="steps", ylabel="return, mean of the last 100 training episodes")
    by_hours.set(xlabel="hours")
    by_steps.legend()
    figure.suptitle(
        f"SAC on {PRESET['env']}, minibatches of 256, two layers of 256, {where(pinned=pinned)} each; "
        f"{PRESET['updates_per_step']} updates a step and 1",
        fontsize=9,
    )
    figure.savefig(path, dpi=120)


def main() -> int:
    """Train or read, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="what is trained where nothing is read")
    parser.add_argument("--ours", type=Path, nargs="+", default=[], help="run folders, or a result")
    parser.add_argument(
        "--theirs", type=Path, nargs="+", default=[], help="what the peer's script printed, or a result"
    )
    parser.add_argument("--pinned", action="store_true", help="each was trained on one core alone, and so is this")
    args = parser.parse_args()
    path = destination(HERE / "results/halfcheetah-sac.json")
    if args.pinned and not (args.ours and args.theirs) and len(os.sched_getaffinity(0)) > 1:
        parser.error("--pinned: what is trained here has more than one core; put taskset -c CORE in front")
    ours = [run for path in args.ours for run in of_ours(path)]
    theirs = [run for path in args.theirs for run in of_theirs(path)]
    seeds = [run.seed for run in ours or theirs] or args.seeds
    ours = ours or [train_ours(seed) for seed in seeds]
    theirs = theirs or [train_theirs(seed) for seed in seeds]
    found = {"penstock": ours, PEER: theirs}
    result = compared(found, pinned=args.pinned)
    write(path, result)
    draw(path.with_suffix(".png"), found, pinned=args.pinned)
    print("greedy return at the end:", ", ".join(f"{name} {mean:.0f}" for name, mean in result["mean_return"].items()))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
