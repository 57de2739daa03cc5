"""How long the other learners stand still when one dies: learners of a stream and of a table, in lock step.

    python -m benchmarks.leaving                      # 3 deaths in each of four runs: a minute and a half
    python -m benchmarks.leaving --write FILE

Three learners share each step. One is killed: the first one, which keeps the state, or one of the others. In lock step
the environments step only while the learners go on. So the longest gap between two environment steps after a death is
how long the run stood still. The environment is Pendulum-v1 in a wrapper that notes the time of each step.
"""

import argparse
import contextlib
import itertools
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import psutil

from benchmarks.arguments import positive_int
from benchmarks.bars import Bar, exit_status
from benchmarks.record import command_of, destination, write
from benchmarks.runs import begun

LIMIT_S = 5.0
"""The bar: the longest that a run may stand still."""
PAUSE_S = 3.0
"""Seconds between a death and the next one. A gap counts for the death before it, however long it is."""
BEGIN_LIMIT_S = 60.0
NOTE = "PENSTOCK_STEPS_OF"
"""Environment variable: the folder in which each process notes its steps."""
LANES, STEPS = 6, 16
SHARED = f"--learners 3 --num_workers 3 --num_envs {LANES} --num_steps {STEPS} --sync_mode blocking --save_interval 1"
WORDS = {
    "stream": "--algo ppo --backend fused --epochs 4 --mini_batch_size 96",
    "table": "--algo sac --backend fused --updates_per_step 0.125 --min_rows 100 --mini_batch_size 96",
}
GROUPS = ("learner", "learner.1")
"""Placement groups of those that die: the keeper of the state, and one of the others."""


class Noting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pendulum-v1. Each step appends its time to a file of this process, in the folder that `NOTE` names."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))

    def step(self, action: Any) -> Any:
        """Note the time, and step."""
        with (Path(os.environ[NOTE]) / str(os.getpid())).open("a", encoding="ascii") as file:
            file.write(f"{time.clock_gettime(time.CLOCK_MONOTONIC)}\n")
        return self.env.step(action)


class Death(NamedTuple):
    """One death, and what came after it."""

    group: str
    stood_still_s: float
    """Longest gap between two environment steps from the death to the next one; infinite if none came."""


def longest_gap(times: Sequence[float], since: float, until: float) -> float:
    """The longest gap between two of ``times``, in order, that lies at least in part between ``since`` and ``until``.

    Infinite if none of them is later than ``since``.
    """
    gaps = [after - before for before, after in itertools.pairwise(times) if after > since and before < until]
    return max(gaps, default=math.inf)


def of_group(pid: int, group: str) -> psutil.Process:
    """The newest process of a placement group, below the launcher ``pid``.

    Raises:
        RuntimeError: none comes.
    """
    until = time.monotonic() + BEGIN_LIMIT_S
    while time.monotonic() < until:
        for process in reversed(psutil.Process(pid).children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                # A process that was forked from the template has its group as its name.
                if process.name() == group:
                    return process
        time.sleep(0.01)
    raise RuntimeError(f"there is no process of {group}")


@contextlib.contextmanager
def training(folder: Path, words: str) -> Iterator[int]:
    """A run that learns while the body runs. Yields the process id of its launcher."""
    command = [Path(sys.executable).parent / "penstock", "train", "--env", "benchmarks.leaving:Noting"]
    rest = [*SHARED.split(), *words.split(), "--timesteps", "100000000", "--eval_episodes", "0"]
    (folder / "steps").mkdir()
    process = subprocess.Popen(
        [*command, *rest, "--log_dir", str(folder / "logs")],
        env={**os.environ, NOTE: str(folder / "steps")},
        stdout=subprocess.DEVNULL,
    )
    try:
        begun(process, folder / "logs", BEGIN_LIMIT_S)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def deaths(words: str, group: str, count: int, pause_s: float = PAUSE_S) -> list[Death]:
    """Kill a learner so many times, and see how long the run stands still each time."""
    with tempfile.TemporaryDirectory() as name:
        folder, killed = Path(name), []
        with training(folder, words) as pid:
            for _ in range(count):
                time.sleep(pause_s)
                process = of_group(pid, group)
                killed.append(time.clock_gettime(time.CLOCK_MONOTONIC))
                process.kill()
            time.sleep(pause_s + LIMIT_S)
            ended = time.clock_gettime(time.CLOCK_MONOTONIC)
        lines = (file.read_text(encoding="ascii").split() for file in (folder / "steps").iterdir())
        times = sorted(float(line) for part in lines for line in part)
    spans = itertools.pairwise([*killed, ended])
    return [Death(group, longest_gap(times, since, until)) for since, until in spans]


def bar_of(case: str, found: Sequence[Death]) -> Bar:
    """The bar of a case: its worst death."""
    return Bar(f"{case}, seconds that the others stood still", max(one.stood_still_s for one in found), LIMIT_S, True)


def main() -> int:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deaths", type=positive_int, default=3, help="in each run")
    parser.add_argument("--write", type=destination, metavar="FILE")
    args = parser.parse_args()
    cases, bars = [], []
    for (pattern, words), group in itertools.product(WORDS.items(), GROUPS):
        found = deaths(words, group, args.deaths)
        bar = bar_of(f"{pattern}, {group} dies", found)
        bars.append(bar)
        print(bar.line(), flush=True)
        seconds = [round(one.stood_still_s, 3) for one in found]
        cases.append({"pattern": pattern, "dies": group, "words": words, "seconds": seconds, "bar": bar.entry()})
    if args.write is not None:
        write(args.write, {"command": command_of("python -m benchmarks.leaving"), "cases": cases})
    return exit_status(bars)


if __name__ == "__main__":
    sys.exit(main())
