"""Everything that is ``auto`` becomes a value here, before anything starts; the run records what it became.

The inference backend is not, and whether the fused update applies is asked: both depend on the environment's spaces,
which the config does not know.
"""

import os
import shutil
import sys
from dataclasses import replace
from typing import Literal

from penstock.config.schema import Config
from penstock.config.workers import auto_num_workers

__all__ = ["auto_backend", "auto_threads", "available_cores", "has_compiler", "resolve"]

COMPILED_PAYS_FROM = 300_000
"""Timesteps from which compiling an update costs less than it saves: a cold compile takes 8 s on two cores."""
FUSED_THREADS = 2
"""The fused update has work for two threads: the actor and the critic."""


def resolve(config: Config, *, fused: bool, image: bool = False) -> Config:
    """The same config with ``num_workers``, ``backend`` and ``threads`` decided for this machine.

    Args:
        config: what to run.
        fused: whether the fused update applies to it.
        image: whether its network sees an image.
    """
    run = config.run
    cores, lock_step = available_cores(), run.sync_mode == "blocking"
    workers = run.num_workers
    if workers == "auto":
        workers = auto_num_workers(run.num_envs, cores, lock_step=lock_step)
    backend = run.backend
    if backend == "auto":
        backend = auto_backend(run.timesteps, fused=fused, compiler=has_compiler())
    threads = run.threads
    if threads == "auto":
        threads = auto_threads(backend, cores, workers, lock_step=lock_step, image=image)
    if backend == "fused":
        threads = min(threads, FUSED_THREADS)
    return replace(config, run=replace(run, num_workers=workers, backend=backend, threads=threads))


def auto_backend(timesteps: int, *, fused: bool, compiler: bool) -> Literal["fused", "eager", "compiled"]:
    """Fused where it applies; else compiled where it pays and can be."""
    if fused:
        return "fused"
    return "compiled" if compiler and timesteps >= COMPILED_PAYS_FROM else "eager"


def auto_threads(backend: str, cores: int, workers: int, *, lock_step: bool, image: bool = False) -> int:
    """Threads of the learner, whose number is part of what the answer's bits are promised for.

    In lock step the environments wait while the learner works, so every core is its own; where collection overlaps
    learning each environment process has a claim to a core. Torch gets them for convolutions, and
    else one: the other shipped networks are too small to part.
    """
    free = max(1, cores if lock_step else cores - workers)
    if backend != "fused":
        return free if image else 1
    return min(FUSED_THREADS, free)


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_compiler() -> bool:
    """True if the C++ compiler that a compiled update is made with is installed."""
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")) is not None
