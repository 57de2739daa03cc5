"""`--sync_mode non_blocking` beside lock step, alternating in one sitting: ratios first.

    python -m benchmarks.non_blocking                    # both parts, 3 rounds; about 6 minutes on 2 cores
    python -m benchmarks.non_blocking --parts sleeping --rounds 1
    python -m benchmarks.non_blocking --write FILE

`published`: PPO on Pendulum-v1 at the published setting, where every core has work all the time. The limit is
2 / (CPU seconds of collection and update for each step). It is measured in lock step with one learner thread, which
sleeps while it waits, so that only work counts.

`sleeping`: each worker sleeps in each vector step. The time is random for each rollout, log-uniform over 1 to 10 ms. So
in lock step the quicker workers wait for the slowest. Both modes have the same times.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar
from benchmarks.end_to_end import BATCH, SETTING
from benchmarks.processes import cpu_per_step
from benchmarks.record import command_of, destination, write
from benchmarks.runs import curve, flags, idle, rate, throughput, train
from benchmarks.sleeping import ROLLOUT
from penstock.metrics.report import STEPS_PER_SECOND

MODES = ("blocking", "non_blocking")
CORES = 2
LANES = 4
"""Number of environments of each sleeping worker. They share one sleep."""
WIDTHS = (2, 4)
SKIP = 3


class Slept(NamedTuple):
    """One run of the sleeping environments."""

    steps_per_s: float
    idle: float
    """Idle share of the environment node that was idle most."""


def published(rounds: int, updates: int) -> tuple[list[Bar], dict[str, Any]]:
    """The published setting: the speed of each mode, and the limit."""
    words = [*flags(SETTING), "--timesteps", str((updates + SKIP + 1) * BATCH)]
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    costs = []
    for number in range(rounds):
        for mode in MODES:
            rates[mode].append(throughput([*words, "--sync_mode", mode], SKIP))
        costs.append(cpu_per_step([*words, "--num_workers", str(CORES), "--threads", "1"], CORES, SKIP))
        line = ", ".join(f"{mode} {values[-1]:,.0f}" for mode, values in rates.items())
        print(f"published, round {number}: {line} steps/s; {costs[-1] * 1e6:.2f} us of CPU a step", flush=True)
    blocking, ours = (statistics.median(rates[mode]) for mode in MODES)
    limit = CORES / statistics.median(costs)
    reached = [
        Bar("published setting, non_blocking / lock step", ours / blocking, 0.95),
        Bar(f"published setting, share of {CORES} / CPU seconds a step", ours / limit, 0.85),
    ]
    steps_per_s = {mode: [round(value) for value in values] for mode, values in rates.items()}
    return reached, {"setting": SETTING, "steps_per_s": steps_per_s, "cpu_us_per_step": [c * 1e6 for c in costs]}


def sleep(workers: int, mode: str, updates: int) -> Slept:
    """One training on the sleeping environments."""
    batch = workers * LANES * ROLLOUT
    sizes = {"num_envs": workers * LANES, "num_workers": workers, "num_steps": ROLLOUT, "eval_episodes": 1}
    words = ["--env", "benchmarks.sleeping:varying", *flags(sizes), "--sync_mode", mode]
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), [*words, "--timesteps", str((updates + SKIP + 1) * batch)])
        shares = idle(run, SKIP)
        return Slept(rate(curve(run, STEPS_PER_SECOND), SKIP), max(shares[f"env.{n}"] for n in range(workers)))


def sleeping(workers: int, rounds: int, updates: int) -> tuple[list[Bar], dict[str, Any]]:
    """The sleeping environments at one width."""
    runs: dict[str, list[Slept]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in MODES:
            runs[mode].append(sleep(workers, mode, updates))
        line = "; ".join(f"{mode} {r[-1].steps_per_s:,.0f} steps/s, idle {r[-1].idle:.1%}" for mode, r in runs.items())
        print(f"sleeping, {workers} workers, round {number}: {line}", flush=True)
    return judged(workers, runs), {
        "workers": workers,
        "steps_per_s": {mode: [round(run.steps_per_s, 1) for run in runs[mode]] for mode in MODES},
        "most_idle_worker": {mode: [round(run.idle, 4) for run in runs[mode]] for mode in MODES},
    }


def judged(workers: int, runs: dict[str, list[Slept]]) -> list[Bar]:
    """The ratio of medians, and the idle time of the most idle worker, beside their bars."""
    blocking, ours = (statistics.median(run.steps_per_s for run in runs[mode]) for mode in MODES)
    most = statistics.median(run.idle for run in runs["non_blocking"])
    name = f"sleeping, {workers} workers"
    return [
        Bar(f"{name}, non_blocking / lock step", ours / blocking, 1.2),
        Bar(f"{name}, share of its time that the most idle worker is idle", most, 0.05, at_most=True),
    ]


def measure(parts: Sequence[str], rounds: int, updates: int) -> tuple[list[Bar], dict[str, Any]]:
    """The requested parts: their bars, and their entries in the result."""
    reached: list[Bar] = []
    entries: dict[str, Any] = {}
    if "published" in parts:
        bars, entries["published"] = published(rounds, updates)
        reached += bars
    if "sleeping" in parts:
        measured = [sleeping(workers, rounds, 3 * updates) for workers in WIDTHS]
        reached += [bar for bars, _ in measured for bar in bars]
        entries["sleeping"] = [entry for _, entry in measured]
    return reached, entries


def main() -> None:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=("published", "sleeping"), default=["published", "sleeping"])
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument(
        "--updates", type=positive_int, default=32, help="batches a run; three times as many where it sleeps"
    )
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    reached, entries = measure(args.parts, args.rounds, args.updates)
    print("\n".join(bar.line() for bar in reached))
    if args.write:
        command = command_of("python -m benchmarks.non_blocking")
        write(args.write, {"command": command, "bars": [bar.entry() for bar in reached], **entries})


if __name__ == "__main__":
    main()
