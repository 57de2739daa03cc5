"""Everything that is ``auto`` becomes a value here, before anything starts; the run records what it became.

The inference backend is not, and whether the fused update applies is asked: both depend on the environment's spaces,
which the config does not know.
"""

import os
import shutil
import sys
from dataclasses import dataclass, replace

from penstock.config.schema import AUTO, Config
from penstock.config.workers import auto_num_workers

__all__ = ["Demand", "auto_backend", "auto_threads", "available_cores", "has_compiler", "most_threads", "resolve"]

COMPILED_PAYS_FROM = 300_000
"""Timesteps from which compiling an update costs less than it saves: a cold compile takes 8 s on two cores."""
COMPILED_STEPS_PAY_FROM = 20_000
"""Gradient steps from a table from which it does: SAC's took 10.9 ms plainly and 6.9 ms compiled, which took 30 s."""
PARTED_FROM = 12_000_000
"""Multiplications of a minibatch in one network from which torch parts it well among threads: two were 1.6 times as
fast as one with 256 rows in two layers of 256, and slower with 64 rows in two layers of 64."""
FUSED = "fused"
FUSED_THREADS = 2
"""The fused update has work for two threads: the actor and the critic."""


@dataclass(frozen=True)
class Demand:
    """What an update asks of a machine: known once the environment's spaces are."""

    fused: bool
    """The fused update applies."""
    multiplications: int
    """Of one minibatch in the policy's network, at least."""
    gradient_steps: int | None = None
    """Of the whole run, where it learns from a table."""


def resolve(config: Config, demand: Demand) -> Config:
    """The same config with ``num_workers``, ``backend`` and ``threads`` decided for this machine.

    Threads that are asked for are bounded too: a run may be resumed, or its policy loaded, where cores are fewer.
    """
    run = config.run
    cores, lock_step = available_cores(), run.sync_mode == "blocking"
    workers = run.num_workers
    if workers == "auto":
        workers = auto_num_workers(run.num_envs, cores, lock_step=lock_step)
    backend = run.backend
    if backend == AUTO:
        backend = auto_backend(run.timesteps, demand, compiler=has_compiler())
    threads = run.threads
    if threads == "auto":
        # Environments that a table's learner outruns hardly use the cores that they have a claim to.
        claimed = 0 if lock_step or demand.gradient_steps is not None else workers
        threads = auto_threads(backend, max(1, (cores - claimed) // run.learners), demand)
    threads = min(threads, most_threads(backend, cores))
    return replace(config, run=replace(run, num_workers=workers, backend=backend, threads=threads))


def auto_backend(timesteps: int, demand: Demand, *, compiler: bool) -> str:
    """Fused where it applies; else compiled where it pays and can be."""
    if demand.fused:
        return FUSED
    if demand.gradient_steps is None:
        pays = timesteps >= COMPILED_PAYS_FROM
    else:
        pays = demand.gradient_steps >= COMPILED_STEPS_PAY_FROM
    return "compiled" if compiler and pays else "eager"


def auto_threads(backend: str, free: int, demand: Demand) -> int:
    """Threads of a learner that has so many cores for itself; the answer's bits are promised for their number.

    The fused update has work for two. Torch gets all of them where there is something to part, and else one.
    """
    if backend == FUSED:
        return most_threads(backend, free)
    return free if demand.multiplications >= PARTED_FROM else 1


def most_threads(backend: str, cores: int) -> int:
    """The most threads that one learner has use for."""
    return min(FUSED_THREADS, cores) if backend == FUSED else cores


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_compiler() -> bool:
    """True if the C++ compiler that a compiled update is made with is installed."""
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")) is not None
