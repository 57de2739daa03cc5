"""SAC on HalfCheetah-v5 beside stable-baselines3's from the same machine: one picture, the same seeds for both.

    python -m benchmarks.learning.beside --seeds 0 1 2       # trains both, one after the other, one core each: hours
    python -m benchmarks.learning.beside --ours RUN ... --theirs LOG ...           # draws what was trained before

A RUN is a run folder of the preset `halfcheetah`, a LOG holds the line that `peers/sb3_sac.py` prints. Both curves are
the mean return of the last 100 training episodes; behind each run ten greedy episodes are played. Writes
`results/halfcheetah-sac.json` and `.png`, and ends with 1 if ours plays worse at the end, by the mean over the seeds.
Needs `penstock[mujoco]`.
"""

import argparse
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
from benchmarks.record import ROOT, write
from benchmarks.runs import Curve, curve, train
from penstock.config.sources import preset_path
from penstock.metrics.report import EVAL_RETURN, RETURN

PRESET = tomllib.loads(preset_path("halfcheetah").read_text("utf-8"))
OURS = ("--preset", "halfcheetah", "--backend", "compiled", "--threads", "1", "--num_workers", "1")
THEIRS = (
    *("--env", PRESET["env"], "--timesteps", str(PRESET["timesteps"]), "--min_rows", str(PRESET["min_rows"])),
    *("--lr", str(PRESET["lr"]), "--episodes", str(PRESET["eval_episodes"]), "--threads", "1"),
)


class Trained(NamedTuple):
    """One seed of either."""

    seed: int
    line: Curve
    mean_return: float
    """Of the greedy episodes at the end."""

    def entry(self) -> dict[str, Any]:
        """For the committed result."""
        last = round(self.line.values[-1], 1)
        seconds = round(self.line.seconds[-1])
        return {"seed": self.seed, "mean_return": round(self.mean_return, 1), "last_100": last, "seconds": seconds}


def of_run(run: Path) -> Trained:
    """What a run folder holds.

    Raises:
        ValueError: it was trained with other settings than the preset's.
    """
    config = tomllib.loads((run / "config.toml").read_text("utf-8"))
    if other := {name: config[name] for name, value in PRESET.items() if config[name] != value}:
        raise ValueError(f"{run} was not trained as the preset says: {other}")
    return Trained(int(config["seed"]), curve(run, RETURN), curve(run, EVAL_RETURN).values[-1])


def of_output(output: str) -> Trained:
    """What stable-baselines3's script printed.

    Raises:
        ValueError: it printed no result.
    """
    result = parse(output)
    line = result["curve"]
    return Trained(int(result["seed"]), Curve(line["steps"], line["seconds"], line["returns"]), result["mean_return"])


def train_ours(seed: int) -> Trained:
    """Train with penstock."""
    return of_run(train(ROOT / "build/learning/halfcheetah", [*OURS, "--seed", str(seed)]))


def train_theirs(seed: int) -> Trained:
    """Train with stable-baselines3."""
    command = [python_of("sb3-mujoco"), PEERS / "sb3_sac.py", *THEIRS, "--seed", str(seed)]
    return of_output(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def draw(path: Path, found: dict[str, Sequence[Trained]]) -> None:
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
    figure.suptitle(f"SAC on {PRESET['env']}, minibatches of 256, two layers of 256, one core each", fontsize=9)
    figure.savefig(path, dpi=120)


def main() -> int:
    """Train or read, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="what is trained where nothing is read")
    parser.add_argument("--ours", type=Path, nargs="+", default=[], help="run folders")
    parser.add_argument("--theirs", type=Path, nargs="+", default=[], help="what the peer's script printed")
    args = parser.parse_args()
    ours = [of_run(run) for run in args.ours] or [train_ours(seed) for seed in args.seeds]
    theirs = [of_output(log.read_text("utf-8")) for log in args.theirs] or [train_theirs(seed) for seed in args.seeds]
    mean, other = (statistics.mean(run.mean_return for run in runs) for runs in (ours, theirs))
    result = {
        "commands": [
            " ".join(["penstock train", *OURS, "--seed SEED"]),
            " ".join(["python benchmarks/peers/sb3_sac.py", *THEIRS, "--seed SEED"]),
        ],
        "holds": mean >= other,
        "mean_return": {"penstock": round(mean, 1), "stable-baselines3": round(other, 1)},
        "penstock": [run.entry() for run in ours],
        "stable-baselines3": [run.entry() for run in theirs],
    }
    write(HERE / "results/halfcheetah-sac.json", result)
    draw(HERE / "results/halfcheetah-sac.png", {"penstock": ours, "stable-baselines3": theirs})
    print(f"greedy return at the end: {mean:.0f}, stable-baselines3 {other:.0f}")
    return 0 if mean >= other else 1


if __name__ == "__main__":
    sys.exit(main())
