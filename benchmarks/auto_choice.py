"""Workers and learner threads that `auto` chooses, beside the best choice by hand, on one core and on two.

    python -m benchmarks.auto_choice                # 2 rounds, about 6 minutes
    python -m benchmarks.auto_choice --write FILE

Every choice runs once in each round, on the cores that it may use (by affinity). Steps per second are those of the
run's own log from its second commit on. `ratio` is the speed of auto, divided by that of the best choice by hand.
`penstock.config.resolve` makes the choice.
"""

import argparse
import itertools
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.arguments import positive_int
from benchmarks.record import command_of, destination, write
from benchmarks.runs import curve, train
from penstock.metrics.report import STEPS_PER_SECOND

SETTINGS = {
    "published": ("Pendulum-v1", 8, 2048, 10, 64),
    "throughput": ("CartPole-v1", 64, 128, 4, 2048),
}
"""Environment, lanes, steps, epochs, minibatch."""
UPDATES = {"published": 12, "throughput": 40}
BY_HAND = tuple(itertools.product(("1", "2", "4"), ("1", "2")))
"""Workers and threads."""


def steps_per_s(setting: str, sync_mode: str, workers: str, threads: str) -> float:
    """Steps per second of one run, from its second commit to its last."""
    env, lanes, steps, epochs, minibatch = SETTINGS[setting]
    timesteps = lanes * steps * (UPDATES[setting] + 2)
    words = f"--env {env} --num_envs {lanes} --num_steps {steps} --epochs {epochs} --mini_batch_size {minibatch}"
    words += f" --timesteps {timesteps} --sync_mode {sync_mode} --num_workers {workers} --threads {threads}"
    with tempfile.TemporaryDirectory() as folder:
        log = curve(train(Path(folder), [*words.split(), "--eval_episodes", "1"]), STEPS_PER_SECOND)
    return (log.steps[-1] - log.steps[1]) / (log.seconds[-1] - log.seconds[1])


def compare(setting: str, sync_mode: str, rounds: int) -> dict[str, Any]:
    """Auto and every choice by hand, alternating; medians over the rounds."""
    choices = (("auto", "auto"), *BY_HAND)
    runs = [[steps_per_s(setting, sync_mode, *choice) for choice in choices] for _ in range(rounds)]
    medians = [statistics.median(values) for values in zip(*runs, strict=True)]
    best = max(range(1, len(choices)), key=medians.__getitem__)
    return {
        "ratio": round(medians[0] / medians[best], 3),
        "best_by_hand": dict(zip(("num_workers", "threads"), choices[best], strict=True)),
        "steps_per_s": {" x ".join(choice): round(value) for choice, value in zip(choices, medians, strict=True)},
    }


def results(cores: Sequence[int], settings: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """One for each number of cores, setting and mode, printed as it comes."""
    allowed = sorted(os.sched_getaffinity(0))
    for count, setting, sync_mode in itertools.product(cores, settings, ("blocking", "non_blocking")):
        os.sched_setaffinity(0, allowed[:count])
        result = {"cores": count, "setting": setting, "sync_mode": sync_mode, **compare(setting, sync_mode, rounds)}
        os.sched_setaffinity(0, allowed)
        print(f"{count} cores, {setting}, {sync_mode}: auto {result['ratio']} of {result['best_by_hand']}", flush=True)
        yield result


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=2)
    parser.add_argument("--cores", type=positive_int, nargs="+", default=[1, 2])
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    measured = list(results(args.cores, args.settings, args.rounds))
    if args.write:
        result = {
            "command": command_of("python -m benchmarks.auto_choice"),
            "ratios": [row["ratio"] for row in measured],
            "results": measured,
        }
        write(args.write, result)


if __name__ == "__main__":
    main()
