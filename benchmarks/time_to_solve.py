"""Wall seconds until a command that ends itself by `--target_return` has ended, process start included.

    python -m benchmarks.time_to_solve                              # both cases, 5 seeds each, under a minute
    python -m benchmarks.time_to_solve --cases Pendulum-v1 --seeds 0 1 2
    python -m benchmarks.time_to_solve --write FILE

A run is solved when its last 100 training episodes average the target. The compile cache is empty each time. After the
run, 100 greedy episodes must average the target as well; their time does not count. Presets are those of the package.
"""

import argparse
import contextlib
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bars import Bar
from benchmarks.record import destination, write
from benchmarks.runs import curve, evaluate, train
from penstock.metrics.report import RETURN

SEEDS = (100, 101, 102, 103, 104)
EPISODES = 100
CACHES = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")


class Case(NamedTuple):
    """A task, its preset, the target return, and the bar in seconds."""

    env: str
    preset: str
    target: float
    limit_s: float


class Solved(NamedTuple):
    """One seed's run."""

    seed: int
    seconds: float
    """Seconds of the whole command; infinite if it ended by its number of steps."""
    steps: int
    greedy_return: float
    """Mean of ``EPISODES`` greedy episodes afterwards."""

    def entry(self) -> dict[str, Any]:
        """For a committed result."""
        seconds = round(self.seconds, 2) if math.isfinite(self.seconds) else None
        return self._asdict() | {"seconds": seconds}


CASES = (Case("CartPole-v1", "cartpole", 475, 1.5), Case("Pendulum-v1", "pendulum", -200, 6))


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
    """The words of the command line. The final evaluation cannot be left out, so it is as short as possible."""
    target = ["--target_return", f"{case.target:g}", "--eval_episodes", "1"]
    return ["--env", case.env, "--preset", case.preset, *target, "--seed", str(seed), *extra]


def solve(case: Case, seed: int, extra: Sequence[str]) -> Solved:
    """Run the command, then look at what it learned."""
    with tempfile.TemporaryDirectory() as folder:
        with empty_caches():
            begun = time.perf_counter()
            run = train(Path(folder), words(case, seed, extra))
            seconds = time.perf_counter() - begun
        log = curve(run, RETURN)
        greedy = float(evaluate(run, EPISODES)["mean_return"])
    return Solved(seed, seconds if log.values[-1] >= case.target else math.inf, log.steps[-1], greedy)


def bars(case: Case, runs: Sequence[Solved]) -> list[Bar]:
    """The bars: the median of the seconds, and the number of seeds that reach the target afterwards."""
    held = sum(run.greedy_return >= case.target for run in runs)
    return [
        Bar(
            f"{case.env} at {case.target:g}, seconds",
            statistics.median(run.seconds for run in runs),
            case.limit_s,
            True,
        ),
        Bar(f"{case.env} at {case.target:g}, seeds whose {EPISODES} greedy episodes hold it", held, len(runs)),
    ]


def measure(case: Case, seeds: Sequence[int], extra: Sequence[str]) -> tuple[list[Bar], dict[str, Any]]:
    """Measure one case with every seed. Returns its bars, and its entry in the result."""
    runs = []
    for seed in seeds:
        runs.append(solve(case, seed, extra))
        _, seconds, steps, greedy = runs[-1]
        print(f"{case.env} seed {seed}: {seconds:.2f} s, {steps:,} steps; greedy {greedy:.1f}", flush=True)
    reached = bars(case, runs)
    command = " ".join(["penstock train", *words(case, 0, extra)]).replace("--seed 0", "--seed SEED")
    return reached, {
        "command": command,
        "judge": f"penstock eval RUN --episodes {EPISODES} --json",
        "bars": [bar.entry() for bar in reached],
        "seeds": [run.entry() for run in runs],
    }


def main() -> None:
    """Solve, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.env for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--write", type=destination, help="write the result here as JSON")
    args, extra = parser.parse_known_args()
    measured = [measure(case, args.seeds, extra) for case in CASES if case.env in args.cases]
    print("\n".join(bar.line() for reached, _ in measured for bar in reached))
    if args.write:
        result = {
            "command": " ".join(["python -m benchmarks.time_to_solve --seeds", *map(str, args.seeds), *extra]),
            "cases": [entry for _, entry in measured],
        }
        write(args.write, result)


if __name__ == "__main__":
    main()
