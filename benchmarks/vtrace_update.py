"""A whole batch of IMPALA and of APPO at their defaults: V-trace, targets, and every gradient step.

    python -m benchmarks.vtrace_update               # about two minutes
    python -m benchmarks.vtrace_update --write FILE

CartPole-v1, 8 lanes, two networks of 64, 64. V-trace costs a forward pass over all rows of the batch besides what PPO
does. The peer is the same mathematics as plain torch calls, on one thread, which is its fastest at this size.

Each round begins with the same state, and learns from the same batch.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measured import Measured, parser, report
from benchmarks.timing import Contestant, compare
from benchmarks.update import LANES, rollout
from penstock.algorithms.appo import spec as appo
from penstock.algorithms.impala import spec as impala
from penstock.envs.sources import probe
from penstock.nodes.learner.batch import minibatches
from penstock.registry import load
from penstock.types import Array, Arrays
from penstock.updates.contract import Updater
from penstock.updates.settings import UpdaterSettings

SPACES = probe("CartPole-v1").spaces


class Case(NamedTuple):
    """An algorithm at its defaults."""

    name: str
    config: Any
    spec: Any
    """The module of the algorithm's spec."""
    calls: int
    """Batches of a round."""


CASES = (Case("impala", impala.IMPALAConfig(), impala, 20), Case("appo", appo.APPOConfig(), appo, 1))


def updater(case: Case, backend: str, threads: int, arrays: Arrays) -> Updater:
    """An update of a backend that learns from ``arrays``."""
    functions = "fused" if backend == "fused" else "learn"
    settings = UpdaterSettings(
        f"penstock.algorithms.{case.name}.{functions}:build",
        case.config,
        case.spec.spec(SPACES, case.config),
        SPACES,
        device="cpu",
        threads=threads,
        seed=0,
    )
    built: Updater = load(f"penstock.updates.{backend}:build")(settings, arrays)
    return built


def learning(case: Case, update: Updater) -> Callable[[], Array]:
    """A contestant that measures the seconds of a batch, from the first state each time."""
    start = case.spec.init_state(SPACES, case.config, 0)
    of = case.spec.spec(SPACES, case.config)
    # A unit is a whole lane, named by its row 0, or a row.
    units = np.arange(LANES if of.unit == "lane" else LANES * case.config.num_steps)
    epochs = [minibatches(units, of.schedule.mini_batch_size, (0, 0, epoch)) for epoch in range(of.schedule.epochs)]

    def run() -> Array:
        update.load(start)
        begun = time.perf_counter()
        update.begin([0], 0.0)
        for epoch in epochs:
            update.minibatches(epoch.indices, epoch.weights)
        found = update.metrics()
        seconds = time.perf_counter() - begun
        if not np.isfinite(list(found.values())).all():
            raise RuntimeError("the update has diverged")
        return np.asarray(seconds)

    return run


def measure(rounds: int) -> list[Measured]:
    """A row for each backend of each algorithm. The backends take turns in so many rounds."""
    rows = []
    for case in CASES:
        of = case.spec.spec(SPACES, case.config)
        state = case.spec.init_state(SPACES, case.config, 0)
        arrays = rollout(SPACES, of, state, case.config.num_steps)
        sides = [("fused", 1), ("fused", 2), ("compiled", 1), ("eager", 1)]
        contestants = [
            Contestant(
                f"{backend}, {threads} thread{'s' * (threads > 1)}",
                "peer" if backend == "eager" else "penstock",
                _mean(learning(case, updater(case, backend, threads, arrays)), case.calls),
            )
            for backend, threads in sides
        ]
        rows += compare(f"{case.name}, a batch of {LANES} x {case.config.num_steps} rows", contestants, rounds)
    return rows


def _mean(run: Callable[[], Array], calls: int) -> Callable[[], Array]:
    return lambda: np.mean([run() for _ in range(calls)])


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("vtrace_update", __doc__, rounds=9)
    args = arguments.parse_args()
    report(arguments, args, measure(args.rounds), {"lanes": LANES})


if __name__ == "__main__":
    main()
