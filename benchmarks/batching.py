"""The share of a learner's time that gathering minibatches takes: would a process for it pay for images and sequences?

    python -m benchmarks.batching                # about 1 minute on one core
    python -m benchmarks.batching --write FILE

A process that gathers minibatches beforehand would save the learner at most this share, and would need a core and
memory for copies. Rows lie in a stream's shared arrays. Gathering is `penstock.updates.batch`; a step is the eager
update on one thread, with its gathering.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.record import command_of, destination, write
from penstock.algorithm_lookup import find_algorithm
from penstock.program.rollout import rollout_specs
from penstock.registry import load
from penstock.types import Array, Arrays, Box, Discrete, Spaces
from penstock.updates.batch import batch_of
from penstock.updates.eager import build
from penstock.updates.settings import UpdaterSettings

IMAGES = Spaces((("obs", Box((4, 84, 84), "uint8", (0.0,), (255.0,))),), Discrete(6))
VECTORS = Spaces((("obs", Box((8,), "float32", (-1.0,), (1.0,))),), Discrete(4))
LANES = 8


class Case(NamedTuple):
    """What is learned from."""

    algo: str
    spaces: Spaces
    settings: dict[str, Any]


CASES = {
    "images, PPO, Nature network, 256 rows": Case("ppo", IMAGES, {"num_steps": 128, "mini_batch_size": 256}),
    "images, IMPALA, Nature network, 8 lanes of 20": Case("impala", IMAGES, {"num_steps": 20, "mini_batch_size": 160}),
    "sequences, PPO, LSTM of 64, 4 lanes of 128": Case(
        "ppo", VECTORS, {"num_steps": 128, "mini_batch_size": 512, "model": "lstm"}
    ),
}


def arrays_of(case: Case, settings: UpdaterSettings) -> Arrays:
    """The arrays of a stream of one slot, filled with noise."""
    spec, generator = settings.spec, np.random.default_rng(0)
    specs = rollout_specs(
        case.spaces, spec.row, settings.config.num_steps, LANES, same_step=True, carry=spec.policy.carry
    )
    arrays = {part.name: np.zeros((1, *part.shape), part.dtype) for part in specs}
    obs = arrays["obs"]
    obs[...] = generator.integers(0, 2, obs.shape)
    arrays["reward"][...] = generator.normal(size=arrays["reward"].shape)
    arrays["valid"][:, :-1] = True
    return arrays


def milliseconds(function: Callable[[], object], rounds: int) -> float:
    """Median time of a call."""
    function()
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        function()
        found.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(found)


def measured(name: str, case: Case, rounds: int) -> dict[str, Any]:
    """One row: the time of a step and of its gathering."""
    package = find_algorithm(case.algo)
    config = package.config(**case.settings)
    spec = load(package.spec)(case.spaces, config)
    units = min(spec.schedule.mini_batch_size, LANES) if spec.unit == "lane" else spec.schedule.mini_batch_size
    spec = replace(spec, schedule=replace(spec.schedule, mini_batch_size=units))
    settings = UpdaterSettings(package.learn, config, spec, case.spaces, "cpu", 1, seed=0)
    arrays = arrays_of(case, settings)
    updater, batch = build(settings, arrays), batch_of(settings, arrays)
    updater.load(load(package.initial)(case.spaces, config, 0))
    updater.begin([0], 0.0)
    indices = _units(spec.unit, units, config.num_steps)
    weights, into = np.ones((1, units), np.float32), batch.buffers(units)
    step = milliseconds(lambda: updater.minibatches(indices, weights), rounds)
    gather = milliseconds(lambda: batch.gather(indices, weights, into), 5 * rounds)
    return {"case": name, "gather_ms": gather, "step_ms": step, "share": gather / step}


def _units(unit: str, count: int, num_steps: int) -> Array:
    """A minibatch, ``[1, count]``: row 0 of lanes, or rows at random."""
    rows = np.arange(LANES) if unit == "lane" else np.arange(num_steps * LANES)
    return np.random.default_rng(1).permutation(rows)[None, :count]


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=20)
    parser.add_argument("--write", type=destination, help="file for the result; without it, results are only printed")
    args = parser.parse_args()
    rows = [measured(name, case, args.rounds) for name, case in CASES.items()]
    for row in rows:
        print(
            f"{row['case']}: {row['gather_ms']:.2f} of {row['step_ms']:.1f} ms, {100 * row['share']:.1f} %", flush=True
        )
    if args.write:
        write(args.write, {"command": command_of("python -m benchmarks.batching"), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
