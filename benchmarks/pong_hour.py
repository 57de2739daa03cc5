"""One hour of IMPALA on Pong, then one hour of Sample Factory's: what each has learned, and how fast it went.

    python -m benchmarks.pong_hour                  # two hours, with the machine to themselves
    python -m benchmarks.pong_hour --minutes 3      # a short look
    python -m benchmarks.pong_hour --write FILE     # also draws FILE with the suffix .png

32 environments of EnvPool, 20 steps, gradient steps of 160 rows with a constant learning rate of 1e-3; the rest as in
`benchmarks/impala.py`. Of seven settings that were tried for penstock, for 0.5 to 1.5 million steps each, this one had
the highest return; nothing was tried for the peer. It has turned out to be too large a step for the convolutions
(docs/algorithms/impala-pong.md). A curve is the mean return of the last 100 training episodes. One run of either
side, so it shows whether a policy is learned and how soon, not which side learns better in the mean.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.arguments import positive_float
from benchmarks.impala import FRAMES, OURS
from benchmarks.peers.run import result_of
from benchmarks.plots import COLORS
from benchmarks.record import destination, write
from benchmarks.runs import curve, flags
from penstock.metrics.report import RETURN

SETTING = {"num_envs": 32, "num_steps": 20, "mini_batch_size": 160, "lr": 1e-3}
EVERY_S = 10.0
"""Seconds between two points of a curve in the result."""
START_S = 120.0
"""Seconds that a peer may take to start and to end."""
LEVELS = (0, 10, 18)
"""Mean returns of Pong, from -21 to 21: as good as the opponent, clearly better, solved."""

Curve = list[tuple[float, int, float]]
"""Seconds, steps, and the mean return of the last 100 training episodes."""


def ours(words: Sequence[str], seconds: float, folder: Path) -> Curve:
    """What penstock learns in so many seconds from its start."""
    sizes = flags({**SETTING, "num_workers": 2, "timesteps": 1_000_000_000, "eval_episodes": 0})
    told = ["--algo", "impala", *words, *sizes, "--policy_placement", "node", "--lr_schedule", "constant"]
    program = Path(sys.executable).parent / "penstock"
    run = subprocess.Popen([program, "train", *told, "--log_dir", folder], stdout=subprocess.DEVNULL)
    try:
        run.wait(seconds)
        raise RuntimeError(f"penstock ended with status {run.returncode} before its time")
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Its time is over, or the user has interrupted this.
        run.send_signal(signal.SIGINT)
        run.wait(START_S)
    (run_folder,) = folder.iterdir()
    found: Curve = []
    for at, steps, mean_return in zip(*_columns(run_folder), strict=True):
        if not found or at >= found[-1][0] + EVERY_S:
            found.append((round(at, 1), steps, round(mean_return, 2)))
    if not found:
        raise RuntimeError("no episode has ended: give more minutes")
    return found


def _columns(run: Path) -> tuple[list[float], list[int], list[float]]:
    found = curve(run, RETURN)
    return found.seconds, found.steps, found.values


def theirs(seconds: float) -> Curve:
    """What Sample Factory learns in so many seconds from its first iteration."""
    words = [*flags(SETTING), "--warm", "0", "--seconds", str(seconds)]
    found = result_of("sample_factory", words, "impala", seconds + START_S)
    return [(at, steps, mean_return) for at, steps, mean_return in found["curve"]]


def summary(line: Curve) -> dict[str, object]:
    """The last point, frames per second, and when each level was reached first; ``None``: not at all."""
    seconds, steps, last = line[-1]
    return {
        "mean_return": last,
        "frames": FRAMES * steps,
        "frames_per_s": round(FRAMES * steps / seconds),
        "minutes_to": {
            level: next((round(at / 60, 1) for at, _, mean_return in line if mean_return >= level), None)
            for level in LEVELS
        },
    }


def draw(path: Path, found: dict[str, Curve]) -> None:
    """Return over minutes, and over frames."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    by_time, by_frames = figure.subplots(1, 2, sharey=True)
    for (name, line), color in zip(found.items(), (COLORS["penstock"], COLORS["peer"]), strict=True):
        seconds, steps, returns = zip(*line, strict=True)
        by_time.plot([at / 60 for at in seconds], returns, color=color, label=name)
        by_frames.plot([FRAMES * step / 1e6 for step in steps], returns, color=color)
    by_time.set(xlabel="minutes", ylabel="return, mean of the last 100 training episodes")
    by_time.legend()
    by_frames.set(xlabel="million frames")
    figure.suptitle("IMPALA on Pong, one run each, one after the other", fontsize=9)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train both, print, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=positive_float, default=60.0, help="of each side")
    parser.add_argument("--write", type=destination, help="write the result here as JSON, and a picture beside it")
    args = parser.parse_args()
    found: dict[str, Curve] = {}
    with tempfile.TemporaryDirectory() as folder:
        found["penstock"] = ours(OURS["penstock, EnvPool"], 60 * args.minutes, Path(folder))
    print("penstock", summary(found["penstock"]), flush=True)
    found["Sample Factory"] = theirs(60 * args.minutes)
    print("Sample Factory", summary(found["Sample Factory"]), flush=True)
    if args.write:
        result = {
            "command": f"python -m benchmarks.pong_hour --minutes {args.minutes:g}",
            "summary": {name: summary(line) for name, line in found.items()},
            "curves": found,
        }
        write(args.write, result)
        draw(args.write.with_suffix(".png"), found)


if __name__ == "__main__":
    main()
