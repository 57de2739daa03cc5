"""Steps per second of 1 to 16 workers whose environments sleep 5 ms a step, in lock step: the share of linear.

    python -m benchmarks.scaling                     # under a minute
    python -m benchmarks.scaling --write FILE

Each worker has one environment. The physical limit is as many processes that only step such an environment.

The loss of a batch against a perfect one has three parts:

- sleeping longer than asked, which the limit loses as well;
- idle environment processes, during the learner's update and while they wait for the slowest;
- the rest: acting, storing rows, scheduling.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.record import command_of, destination, write
from benchmarks.runs import curve, flags, idle, rate, train
from benchmarks.sleeping import FIXED_S, fixed
from penstock.metrics.report import STEPS_PER_SECOND

WORKERS = (1, 2, 4, 8, 16)
NUM_STEPS = 128
SKIP = 1
LINEAR = 0.9
START_LIMIT_S = 120.0
SLOWEST = 10
"""A bare step may take so many times as long as its sleep."""


def penstock(workers: int, batches: int) -> tuple[float, float]:
    """Steps per second in steady state, and the mean idle share of the environment nodes."""
    sizes = {"num_envs": workers, "num_workers": workers, "num_steps": NUM_STEPS, "eval_episodes": 1}
    steps = (batches + SKIP + 1) * workers * NUM_STEPS
    words = ["--env", "benchmarks.sleeping:fixed", *flags(sizes), "--timesteps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder), words)
        shares = idle(run, SKIP)
        return rate(curve(run, STEPS_PER_SECOND), SKIP), float(np.mean([shares[f"env.{n}"] for n in range(workers)]))


def limit(workers: int, steps: int) -> float:
    """Steps per second of bare environments in processes of their own.

    Raises:
        RuntimeError: one of them ends, or takes too long.
    """
    spawn = multiprocessing.get_context("spawn")
    start, seconds = spawn.Barrier(workers, timeout=START_LIMIT_S), spawn.Queue()
    processes = [spawn.Process(target=_step_alone, args=(steps, start, seconds)) for _ in range(workers)]
    for process in processes:
        process.start()
    limit_s = START_LIMIT_S + SLOWEST * steps * FIXED_S
    try:
        taken = [seconds.get(timeout=limit_s) for _ in processes]
    except Empty:
        raise RuntimeError(f"a bare environment has ended, or takes longer than {limit_s:.0f} s") from None
    finally:
        for process in processes:
            process.kill()
            process.join()
    return workers * steps / float(np.mean(taken))


def _step_alone(steps: int, start: Barrier, seconds: "Queue[float]") -> None:
    env, action = fixed(1), np.zeros(1, np.int64)
    env.reset()
    start.wait()
    begun = time.perf_counter()
    for _ in range(steps):
        env.step(action)
    seconds.put(time.perf_counter() - begun)


def row(workers: int, ours: float, idle_share: float, bare: float) -> dict[str, Any]:
    """The result of one width: the share of its time in which it slept as asked, and the parts of the rest."""
    perfect = workers / FIXED_S
    slept, busy = ours / bare, 1.0 - idle_share
    return {
        "workers": workers,
        "steps_per_s": round(ours, 1),
        "limit_steps_per_s": round(bare, 1),
        "of_limit": round(ours / bare, 4),
        "of_sleep_alone": round(ours / perfect, 4),
        "lost_to_longer_sleeps": round(slept - ours / perfect, 4),
        "lost_to_idle": round(idle_share, 4),
        "lost_to_the_rest": round(busy - slept, 4),
    }


def main() -> int:
    """Measure every width, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", nargs="+", type=positive_int, default=list(WORKERS))
    parser.add_argument("--batches", type=positive_int, default=6, help="batches that are measured at each width")
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args = parser.parse_args()
    rows = []
    for workers in args.workers:
        bare = limit(workers, args.batches * NUM_STEPS // 2)
        rows.append(row(workers, *penstock(workers, args.batches), bare))
        print(", ".join(f"{name} {value:,}" for name, value in rows[-1].items()), flush=True)
    first, last = rows[0], rows[-1]
    per_worker = [entry["steps_per_s"] / entry["workers"] for entry in (first, last)]
    bar = Bar(f"{last['workers']} workers, share of linear", per_worker[1] / per_worker[0], LINEAR)
    print(bar.line())
    if args.write:
        command = command_of("python -m benchmarks.scaling")
        write(args.write, {"command": command, "sleep_s": FIXED_S, "bars": [bar.entry()], "widths": rows})
    return exit_status([bar])


if __name__ == "__main__":
    sys.exit(main())
