"""Gradient steps on a GPU: one torch call after the other, and captured as a CUDA graph; beside the CPU of its machine.

    python -m benchmarks.gpu                # a minute; needs a GPU and the extra `atari`
    python -m benchmarks.gpu --write FILE

- A stream: PPO with the network of the Atari papers on 8 lanes of 128 steps, four epochs of minibatches of 256 rows of
  84 x 84 x 4; and PPO on Pendulum-v1 likewise, with minibatches of 64 rows. A time is that of one minibatch, gather,
  normalisation, clip, Adam and metrics included. The time to bring the rows to the GPU stands beside it.
- A table: SAC with two layers of 256 and of 1,024, 256 rows, and DQN on images of Atari, 32 rows. A time is that of one
  gradient step, the way of its rows to the GPU included.

Rows hold random numbers. All is measured in turn, round by round; times are medians.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.measured import parser
from benchmarks.record import command_of, write
from benchmarks.varied import varied
from penstock.algorithm_lookup import find_algorithm
from penstock.config.resolve import available_cores, most_threads
from penstock.envs.sources import probe
from penstock.program.rollout import rollout_specs
from penstock.registry import UPDATES, load
from penstock.types import Spaces
from penstock.updates.made_up import made_up_rollout, made_up_sample
from penstock.updates.settings import UpdaterSettings

LANES, STEPS, EPOCHS = 8, 128, 4
GRADIENT_STEPS = 100
PONG = "ALE/Pong-v5"


class Case(NamedTuple):
    """One algorithm at one size."""

    name: str
    algo: str
    env: str
    settings: dict[str, Any]
    precisions: tuple[str, ...] = ("float32",)
    on_cpu: str = "eager"
    """What runs on the CPU beside it."""


CASES = (
    Case(
        "PPO, images of Atari, 256 rows",
        "ppo",
        PONG,
        {"num_steps": STEPS, "mini_batch_size": 256},
        ("float32", "bfloat16", "float16"),
    ),
    Case(
        "PPO, two layers of 64, 64 rows",
        "ppo",
        "Pendulum-v1",
        {"num_steps": STEPS, "mini_batch_size": 64},
        on_cpu="fused",
    ),
    Case("SAC, two layers of 256, 256 rows", "sac", "Pendulum-v1", {}, on_cpu="fused"),
    Case("SAC, two layers of 1,024, 256 rows", "sac", "Pendulum-v1", {"hidden_sizes": (1024, 1024)}),
    Case("DQN, images of Atari, 32 rows", "dqn", PONG, {"mini_batch_size": 32}),
)


class Way(NamedTuple):
    """One way to run the updates of a case."""

    what: str
    seconds: Callable[[], dict[str, float]]
    built_s: float


def ways(case: Case, spaces: Spaces) -> Iterator[Way]:
    """Each way on the GPU, then that on the CPU."""
    for precision in case.precisions:
        for backend, what in (("compiled", "captured"), ("eager", "eager")):
            yield _way(case, spaces, f"GPU, {what}, {precision}", backend, "cuda", precision)
    threads = most_threads(case.on_cpu, available_cores())
    yield _way(case, spaces, f"CPU, {case.on_cpu}, {threads} threads", case.on_cpu, "cpu", "float32", threads)


def _way(case: Case, spaces: Spaces, what: str, backend: str, device: str, precision: str, threads: int = 1) -> Way:
    package = find_algorithm(case.algo)
    in_precision = {"precision": precision} if len(case.precisions) > 1 else {}
    config = package.config(**case.settings, **in_precision)
    spec = load(package.spec)(spaces, config)
    functions = package.fused if UPDATES[backend].native else package.learn
    settings = UpdaterSettings(functions, config, spec, spaces, device, threads=threads, seed=0)
    state = load(package.initial)(spaces, config, 0)
    begun = time.perf_counter()
    if spec.table is not None:
        updater = load(UPDATES[backend].replay)(settings)
        seconds = _from_table(updater, spec, spaces)
    else:
        specs = rollout_specs(spaces, spec.row, STEPS, LANES, same_step=True)
        made = varied(spaces, made_up_rollout(spaces, specs), np.random.default_rng(0))
        rows = {name: values[None] for name, values in made.items()}
        updater = load(UPDATES[backend].stream)(settings, rows)
        seconds = _from_stream(updater, config.mini_batch_size)
    updater.load(state)
    seconds()
    return Way(what, seconds, time.perf_counter() - begun)


def _from_stream(updater: Any, size: int) -> Callable[[], dict[str, float]]:
    indices = np.stack([np.random.default_rng(epoch).permutation(STEPS * LANES) for epoch in range(EPOCHS)])
    indices = indices.reshape(-1, size)
    weights = np.ones(indices.shape, np.float32)

    def seconds() -> dict[str, float]:
        begun = time.perf_counter()
        updater.begin([0], 0.25)
        _wait()
        brought = time.perf_counter()
        updater.minibatches(indices, weights)
        updater.metrics()
        return {"step": (time.perf_counter() - brought) / len(indices), "bring": brought - begun}

    return seconds


def _from_table(updater: Any, spec: Any, spaces: Spaces) -> Callable[[], dict[str, float]]:
    rows = updater.buffers()
    made = varied(spaces, made_up_sample(spec, spaces, spec.schedule.mini_batch_size), np.random.default_rng(0))
    for name, values in made.items():
        rows[name][...] = values

    def seconds() -> dict[str, float]:
        begun = time.perf_counter()
        for _ in range(GRADIENT_STEPS):
            updater.learn(rows, 0.25)
        updater.metrics()
        return {"step": (time.perf_counter() - begun) / GRADIENT_STEPS}

    return seconds


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(rounds: int) -> list[dict[str, Any]]:
    """A row for each way of each case."""
    rows = []
    for case in CASES:
        found = list(ways(case, probe(case.env).spaces))
        taken = [[way.seconds() for way in found] for _ in range(rounds)]
        for number, way in enumerate(found):
            median = {name: np.median([one[number][name] for one in taken]) for name in taken[0][number]}
            row = {"case": case.name, "what": way.what, "step_us": round(float(median["step"]) * 1e6, 1)}
            row |= {"bring_ms": round(float(median["bring"]) * 1e3, 3)} if "bring" in median else {}
            rows.append(row | {"start_s": round(way.built_s, 2)})
            print(*(f"{name}: {value}" for name, value in rows[-1].items()), sep=", ", flush=True)
    return rows


def main() -> None:
    """Measure, print, and write if asked to."""
    arguments = parser("gpu", __doc__, rounds=5)
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        arguments.error("torch finds no GPU here")
    gpu = torch.cuda.get_device_name()
    result = {"command": command_of(arguments.prog), "gpu": gpu, "rows": measure(given.rounds)}
    if given.write:
        write(given.write, result)


if __name__ == "__main__":
    main()
