"""APPO on CartPole-v1 at 64 environments beside Sample Factory's, alternating in one sitting: ratios first.

    python -m benchmarks.appo                  # 3 rounds; about 6 minutes on 2 cores
    python -m benchmarks.appo --write FILE

1. Steps per second in steady state: updates are included, start-up is not. Both sides step Python environments, and
   EnvPool (`pip install 'penstock[envpool]'`). Both learn from batches of 64 x 128 rows or more, in four epochs, with
   two separate networks of 64, 64 units. Sample Factory has the workers and batches that were found best for it on two
   cores, with minibatches of 2,048 rows; ours have 256: with 2,048 it learns too slowly for 2.
2. Return after 300,000 steps: the mean of the last 100 training episodes, in three runs of Python environments of each
   side, with these settings. The faster side has to be no worse.
"""

import argparse
import statistics
import sys
import tempfile
from bisect import bisect_left
from pathlib import Path

from benchmarks.arguments import positive_float, positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.peers.run import result_of
from benchmarks.record import command_of, destination, write
from benchmarks.runs import curve, flags, throughput, train
from penstock.metrics.report import RETURN

SETTING = {"num_envs": 64, "num_steps": 128, "epochs": 4, "mini_batch_size": 256, "lr": 1e-3}
BATCH = 64 * 128
UNTIL = 300_000
"""Steps after which returns are compared."""
TIMES = 3.0
"""How many times as fast ours has to be."""
PYTHON, ENVPOOL = "Python environments", "EnvPool"
TASKS = {PYTHON: "CartPole-v1", ENVPOOL: "envpool:CartPole-v1"}
KINDS = {PYTHON: ["--python"], ENVPOOL: []}
"""What steps the environments of Sample Factory."""


def ours(task: str, updates: int) -> float:
    """Steps per second of penstock."""
    words = ["--algo", "appo", "--env", task, *flags(SETTING), "--timesteps", str(updates * BATCH)]
    return throughput(words, skip=5)


def theirs(kind: str, seconds: float) -> float:
    """Steps per second of Sample Factory."""
    return float(result_of("sample_factory", [*KINDS[kind], "--seconds", str(seconds)])["steps_per_s"])


def our_return(seed: int) -> float:
    """The training return of penstock after `UNTIL` steps."""
    words = ["--algo", "appo", "--env", TASKS[PYTHON], *flags(SETTING), "--timesteps", str(UNTIL)]
    with tempfile.TemporaryDirectory() as folder:
        found = curve(train(Path(folder), [*words, "--seed", str(seed), "--eval_episodes", "1"]), RETURN)
    return found.values[min(bisect_left(found.steps, UNTIL), len(found.values) - 1)]


def their_return(seed: int) -> float:
    """The training return of Sample Factory after `UNTIL` steps."""
    words = [*KINDS[PYTHON], "--seed", str(seed), "--until", str(UNTIL)]
    return float(result_of("sample_factory", words)["mean_return"])


def judged(rates: dict[str, list[float]], returns: dict[str, list[float]]) -> list[Bar]:
    """The ratios of medians, and the difference of the mean returns, beside their bars."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    speeds = [
        Bar(
            f"{kind}: penstock / Sample Factory",
            medians[f"penstock, {kind}"] / medians[f"Sample Factory, {kind}"],
            TIMES,
        )
        for kind in TASKS
    ]
    means = {side: statistics.mean(values) for side, values in returns.items()}
    better = Bar(f"return after {UNTIL:,} steps beside Sample Factory's", means["penstock"], means["Sample Factory"])
    return [*speeds, better]


def main() -> int:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--updates", type=positive_int, default=150, help="batches of penstock in a round")
    parser.add_argument("--peer_seconds", type=positive_float, default=15, help="seconds of Sample Factory in a round")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    rates: dict[str, list[float]] = {}
    returns: dict[str, list[float]] = {"penstock": [], "Sample Factory": []}
    for number in range(args.rounds):
        for kind, task in TASKS.items():
            rates.setdefault(f"Sample Factory, {kind}", []).append(theirs(kind, args.peer_seconds))
            rates.setdefault(f"penstock, {kind}", []).append(ours(task, args.updates))
        returns["Sample Factory"].append(their_return(number))
        returns["penstock"].append(our_return(number))
        print(
            f"round {number}: " + "; ".join(f"{name} {values[-1]:,.0f}" for name, values in rates.items()), flush=True
        )
        print(f"round {number}: " + "; ".join(f"return of {side} {values[-1]:.0f}" for side, values in returns.items()))
    bars = judged(rates, returns)
    print("\n".join(bar.line() for bar in bars))
    if args.write:
        result = {
            "command": command_of("python -m benchmarks.appo"),
            "setting": SETTING,
            "bars": [bar.entry() for bar in bars],
            "steps_per_s": {name: [round(value) for value in values] for name, values in rates.items()},
            "returns": {side: [round(value, 1) for value in values] for side, values in returns.items()},
        }
        write(args.write, result)
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
