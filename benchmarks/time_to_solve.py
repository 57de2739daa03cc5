"""Wall seconds of a command until its task is solved, process start included.

    python -m benchmarks.time_to_solve                              # all cases, 5 seeds each: about eight minutes
    python -m benchmarks.time_to_solve --cases pendulum sac-pendulum --seeds 0 1 2
    python -m benchmarks.time_to_solve --write FILE

- PPO ends by `--target_return`: when its last 100 training episodes average the target.
- What learns from replay ends by its timesteps, because the last 100 training episodes are most of such a run.

After the run, 100 greedy episodes must average the target; their time does not count. A run whose episodes do not, or
that ends before it reaches the target, is never solved. The compile cache is empty each time. A case has the name of
its preset.
"""

import argparse
import contextlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bars import Bar, exit_status
from benchmarks.record import command_of, destination, write
from benchmarks.runs import curve, evaluate, train
from penstock.metrics.report import RETURN

SEEDS = (100, 101, 102, 103, 104)
EPISODES = 100
CACHES = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")


class Case(NamedTuple):
    """A command, the return that it has to reach, and the bar in seconds."""

    name: str
    target: float
    limit_s: float
    words: tuple[str, ...]
    """Behind ``penstock train``."""
    by_return: bool = False
    """Whether the command ends by the training return; else by its timesteps."""


class Solved(NamedTuple):
    """One seed's run."""

    seed: int
    seconds: float
    """Seconds of the whole command; infinite if it did not reach the target."""
    steps: int
    greedy_return: float
    """Mean of ``EPISODES`` greedy episodes afterwards."""

    def entry(self) -> dict[str, Any]:
        """For a committed result."""
        seconds = round(self.seconds, 2) if math.isfinite(self.seconds) else None
        return self._asdict() | {"seconds": seconds}


def preset(name: str, target: float, limit_s: float, *words: str, by_return: bool = False) -> Case:
    """The case of a preset of the package."""
    return Case(name, target, limit_s, ("--preset", name, *words), by_return)


DEFAULTS = ("--algo", "sac", "--env", "Pendulum-v1", "--timesteps", "15000")
CASES = (
    preset("cartpole", 475, 1.5, "--env", "CartPole-v1", by_return=True),
    preset("pendulum", -200, 6, "--env", "Pendulum-v1", by_return=True),
    preset("sac-pendulum", -160, 5),
    preset("td3-pendulum", -160, 5),
    preset("ddpg-pendulum", -160, 5),
    preset("dqn-cartpole", 475, 5),
    preset("apex-cartpole", 475, 5, "--num_workers", "4"),
    Case("sac at its defaults", -160, 45, DEFAULTS),
)


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """Empty all compile caches for the commands of the body."""
    before = {name: os.environ.get(name) for name in CACHES}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(dict.fromkeys(CACHES, folder))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def words(case: Case, seed: int, extra: Sequence[str]) -> list[str]:
    """The words of the command line. Its final evaluation is as short as possible: episodes are played afterwards."""
    target = ["--target_return", f"{case.target:g}"] if case.by_return else []
    return [*case.words, *target, "--eval_episodes", "1", "--seed", str(seed), *extra]


def solve(case: Case, seed: int, extra: Sequence[str]) -> Solved:
    """Run the command, then look at what it learned."""
    with tempfile.TemporaryDirectory() as folder:
        with empty_caches():
            begun = time.perf_counter()
            run = train(Path(folder), words(case, seed, extra))
            seconds = time.perf_counter() - begun
        log = curve(run, RETURN)
        greedy = float(evaluate(run, EPISODES)["mean_return"])
    reached = log.values[-1] if case.by_return else greedy
    return Solved(seed, seconds if reached >= case.target else math.inf, log.steps[-1], greedy)


def bars(case: Case, runs: Sequence[Solved]) -> list[Bar]:
    """The bars: the median of the seconds, and the number of seeds that reach the target afterwards."""
    held = sum(run.greedy_return >= case.target for run in runs)
    return [
        Bar(
            f"{case.name} at {case.target:g}, seconds",
            statistics.median(run.seconds for run in runs),
            case.limit_s,
            True,
        ),
        Bar(f"{case.name} at {case.target:g}, seeds whose {EPISODES} greedy episodes hold it", held, len(runs)),
    ]


def measure(case: Case, seeds: Sequence[int], extra: Sequence[str]) -> tuple[list[Bar], dict[str, Any]]:
    """Measure one case with every seed. Returns its bars, and its entry in the result."""
    runs = []
    for seed in seeds:
        runs.append(solve(case, seed, extra))
        _, seconds, steps, greedy = runs[-1]
        print(f"{case.name} seed {seed}: {seconds:.2f} s, {steps:,} steps; greedy {greedy:.1f}", flush=True)
    reached = bars(case, runs)
    command = " ".join(["penstock train", *words(case, 0, extra)]).replace("--seed 0", "--seed SEED")
    return reached, {
        "command": command,
        "judge": f"penstock eval RUN --episodes {EPISODES} --json",
        "bars": [bar.entry() for bar in reached],
        "seeds": [run.entry() for run in runs],
    }


def main() -> int:
    """Solve, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    parser.add_argument("flags", nargs="*", help="behind --: more flags of penstock train", metavar="-- FLAG")
    args = parser.parse_args()
    measured = [measure(case, args.seeds, args.flags) for case in CASES if case.name in args.cases]
    print("\n".join(bar.line() for reached, _ in measured for bar in reached))
    if args.write:
        result = {
            "command": command_of("python -m benchmarks.time_to_solve"),
            "cases": [entry for _, entry in measured],
        }
        write(args.write, result)
    return exit_status(bar for reached, _ in measured for bar in reached)


if __name__ == "__main__":
    sys.exit(main())
