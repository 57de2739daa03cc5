"""From the start of `penstock train` to its first environment step and its first gradient step; then 64 processes.

    python -m benchmarks.first_steps                  # 7 rounds, about 20 seconds
    python -m benchmarks.first_steps --write FILE

The environment is Pendulum-v1 in a wrapper that notes the time of its first step. The first gradient step counts as
done when the first line of `metrics.jsonl` appears. By then a whole batch is learned from, committed, published and
reported: 8 minibatches of 64 rows, or 64 with 64 processes. The limit is plain Python that imports NumPy and Gymnasium,
as every training has to.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium

from benchmarks.measured import Measured, parser, report
from penstock.metrics.jsonl import METRICS

CASE = "from the start of a command"
STEP_US, GRADIENT_US = 600_000.0, 800_000.0
"""The bars of `penstock train`: microseconds to its first environment step, and to its first gradient step."""
MANY = 64
"""Number of environment processes that have to work on one machine."""
NOTE = "PENSTOCK_FIRST_STEP"
"""Environment variable: the file that the first step is noted in."""
LOOK_S = 0.001


class Noting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pendulum-v1. The first step of a process appends the time to the file that `PENSTOCK_FIRST_STEP` names."""

    noted = False

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))

    def step(self, action: Any) -> Any:
        """Step, and note the first time."""
        if not Noting.noted:
            Noting.noted = True
            with Path(os.environ[NOTE]).open("a", encoding="ascii") as file:
                file.write(f"{time.clock_gettime(time.CLOCK_MONOTONIC)}\n")
        return self.env.step(action)


def training(processes: int, lanes: int) -> tuple[float, float]:
    """Seconds to the first environment step of the last process, and to the first gradient step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = f"--num_envs {processes * lanes} --num_workers {processes} --num_steps 64 --epochs 1 --timesteps 1"
        command = [Path(sys.executable).parent / "penstock", "train", "--env", "benchmarks.first_steps:Noting"]
        environment = {**os.environ, NOTE: str(folder / "first")}
        begun = time.clock_gettime(time.CLOCK_MONOTONIC)
        process = subprocess.Popen(
            [*command, *words.split(), "--eval_episodes", "1", "--log_dir", str(folder / "logs")],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        while process.poll() is None and not any(
            file.stat().st_size for file in (folder / "logs").glob(f"*/{METRICS}")
        ):
            time.sleep(LOOK_S)
        gradient = time.clock_gettime(time.CLOCK_MONOTONIC) - begun
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, "penstock train")
        # The lines are in the order of time. The final evaluation steps last.
        stepped = [float(line) for line in (folder / "first").read_text(encoding="ascii").split()][:-1]
    if len(stepped) != processes:
        raise RuntimeError(f"{len(stepped)} of {processes} environment processes stepped")
    return max(stepped) - begun, gradient


def importing() -> float:
    """Seconds of a process that only imports what every training needs."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import numpy, gymnasium"], check=True)
    return time.perf_counter() - begun


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("first_steps", __doc__, rounds=7)
    args = arguments.parse_args()
    rounds = [(*training(2, 4), importing()) for _ in range(args.rounds)]
    step, gradient, floor = (round(statistics.median(values) * 1e6) for values in zip(*rounds, strict=True))
    many = training(MANY, 1)
    rows = [
        Measured(CASE, "penstock train, to its first environment step", "penstock", step, None, STEP_US),
        Measured(CASE, "penstock train, to its first gradient step", "penstock", gradient, None, GRADIENT_US),
        Measured(CASE, f"the same with {MANY} environment processes", "penstock", round(many[1] * 1e6)),
        Measured(CASE, "python that imports NumPy and Gymnasium", "limit", floor),
    ]
    report(arguments, args, rows, {})


if __name__ == "__main__":
    main()
