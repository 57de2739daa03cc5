"""`--sync_mode non_blocking` beside lock step, alternating in one sitting: ratios first.

    python -m benchmarks.non_blocking                    # all parts, 3 rounds; about 9 minutes on 2 cores
    python -m benchmarks.non_blocking --parts sleeping --rounds 1
    python -m benchmarks.non_blocking --write FILE

`published`: PPO on Pendulum-v1 at the published setting, where every core has work all the time. The limit is
2 / (CPU seconds of collection and update for each step). It is measured in lock step with one learner thread, which
sleeps while it waits, so that only work counts.

`sleeping`: each worker sleeps in each vector step. The time is random for each rollout, log-uniform over 1 to 10 ms. So
in lock step the quicker workers wait for the slowest. Both modes have the same times.

`lasting`: the same, but each of four workers keeps its time: 1, 2.2, 4.6 and 10 ms. So the last one is always the
slowest. In lock step all go at its pace, without it each at its own. The rows of a slow worker come from an older
policy. Those that are older than ``--max_policy_lag`` are dropped; the result has their share.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.end_to_end import BATCH, SETTING
from benchmarks.processes import cpu_per_step
from benchmarks.record import command_of, destination, write
from benchmarks.runs import curve, flags, idle, rate, throughput, train
from benchmarks.sleeping import APART, ROLLOUT
from penstock.metrics.jsonl import read_reports
from penstock.metrics.report import STEPS_PER_SECOND

PARTS = ("published", "sleeping", "lasting")
MODES = ("blocking", "non_blocking")
CORES = 2
LANES = 4
"""Number of environments of each sleeping worker. They share one sleep."""
WIDTHS = {"sleeping": (2, 4), "lasting": (APART,)}
"""Part -> numbers of workers."""
ENVS = {"sleeping": "benchmarks.sleeping:varying", "lasting": "benchmarks.sleeping:lasting"}
LEAST = {"sleeping": 1.2, "lasting": 3.0}
"""Part -> least speed beside lock step. The limit of the lasting times is 4.45: (1 + 0.46 + 0.22 + 0.1) / 0.4."""
SKIP = 3


class Slept(NamedTuple):
    """One run of the sleeping environments."""

    steps_per_s: float
    idle: float
    """Idle share of the environment node that was idle most."""
    stale: float
    """Share of the rows that were dropped because their policy was too old."""


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


def sleep(part: str, workers: int, mode: str, updates: int) -> Slept:
    """One training on the sleeping environments of a part."""
    batch = workers * LANES * ROLLOUT
    sizes = {"num_envs": workers * LANES, "num_workers": workers, "num_steps": ROLLOUT, "eval_episodes": 1, "seed": 0}
    words = ["--env", ENVS[part], *flags(sizes), "--sync_mode", mode]
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), [*words, "--timesteps", str((updates + SKIP + 1) * batch)])
        shares = idle(run, SKIP)
        rows = [report.values for report in read_reports(run) if "rows/collected" in report.values][-1]
        return Slept(
            rate(curve(run, STEPS_PER_SECOND), SKIP),
            max(shares[f"env.{n}"] for n in range(workers)),
            rows["rows/stale"] / rows["rows/collected"],
        )


def sleeping(part: str, workers: int, rounds: int, updates: int) -> tuple[list[Bar], dict[str, Any]]:
    """The sleeping environments of a part at one width."""
    runs: dict[str, list[Slept]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in MODES:
            runs[mode].append(sleep(part, workers, mode, updates))
        line = "; ".join(
            f"{mode} {r[-1].steps_per_s:,.0f} steps/s, idle {r[-1].idle:.1%}, stale {r[-1].stale:.1%}"
            for mode, r in runs.items()
        )
        print(f"{part}, {workers} workers, round {number}: {line}", flush=True)
    return judged(part, workers, runs), {
        "workers": workers,
        "steps_per_s": {mode: [round(run.steps_per_s, 1) for run in runs[mode]] for mode in MODES},
        "most_idle_worker": {mode: [round(run.idle, 4) for run in runs[mode]] for mode in MODES},
        "stale": {mode: [round(run.stale, 4) for run in runs[mode]] for mode in MODES},
    }


def judged(part: str, workers: int, runs: dict[str, list[Slept]]) -> list[Bar]:
    """The ratio of medians, and the idle time of the most idle worker, beside their bars."""
    blocking, ours = (statistics.median(run.steps_per_s for run in runs[mode]) for mode in MODES)
    most = statistics.median(run.idle for run in runs["non_blocking"])
    name = f"{part}, {workers} workers"
    return [
        Bar(f"{name}, non_blocking / lock step", ours / blocking, LEAST[part]),
        Bar(f"{name}, share of its time that the most idle worker is idle", most, 0.05, at_most=True),
    ]


def measure(parts: Sequence[str], rounds: int, updates: int) -> tuple[list[Bar], dict[str, Any]]:
    """The requested parts: their bars, and their entries in the result."""
    reached: list[Bar] = []
    entries: dict[str, Any] = {}
    if "published" in parts:
        bars, entries["published"] = published(rounds, updates)
        reached += bars
    for part, widths in WIDTHS.items():
        if part in parts:
            measured = [sleeping(part, workers, rounds, 3 * updates) for workers in widths]
            reached += [bar for bars, _ in measured for bar in bars]
            entries[part] = [entry for _, entry in measured]
    return reached, entries


def main() -> int:
    """Alternate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
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
    return exit_status(reached)


if __name__ == "__main__":
    sys.exit(main())
