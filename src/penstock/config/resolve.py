"""Everything that is ``auto`` becomes a value here, before anything starts; the run records what it became.

The inference backend is not: it depends on the environment's spaces, which the config does not know.
"""

import os
import shutil
import sys
from dataclasses import replace
from typing import Literal

from penstock.config.schema import Config
from penstock.config.workers import auto_num_workers

__all__ = ["auto_backend", "available_cores", "has_compiler", "resolve"]

COMPILED_PAYS_FROM = 300_000
"""Timesteps from which compiling an update costs less than it saves: a cold compile takes 8 s on two cores."""


def resolve(config: Config) -> Config:
    """The same config with ``num_workers``, ``backend`` and ``threads`` decided for this machine."""
    run = config.run
    workers = auto_num_workers(run.num_envs, available_cores()) if run.num_workers == "auto" else run.num_workers
    backend = auto_backend(run.timesteps, compiler=has_compiler()) if run.backend == "auto" else run.backend
    # One thread: the shipped networks are too small to part, and the number of threads is part of the answer's bits.
    threads = 1 if run.threads == "auto" else run.threads
    return replace(config, run=replace(run, num_workers=workers, backend=backend, threads=threads))


def auto_backend(timesteps: int, *, compiler: bool) -> Literal["eager", "compiled"]:
    """Compiled where it pays and can be: the fused update, once built, comes before both."""
    return "compiled" if compiler and timesteps >= COMPILED_PAYS_FROM else "eager"


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_compiler() -> bool:
    """True if the C++ compiler that a compiled update is made with is installed."""
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")) is not None
