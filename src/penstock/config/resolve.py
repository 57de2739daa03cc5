"""Decides ``sync_mode``, ``num_workers``, ``backend`` and ``threads`` where they are ``auto``, before anything starts.

The config of the run folder holds the decided values. ``planning/backends.py`` decides the inference backend and
whether the fused update applies, because both depend on the environment's spaces.
"""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.config.fields import AUTO
from penstock.config.schema import RunConfig
from penstock.config.settings.computation import COMPILED_PAYS_FROM, COMPILED_STEPS_PAY_FROM
from penstock.config.whole import Config
from penstock.config.workers import auto_num_workers, check_sharing, num_workers_of_cluster

__all__ = [
    "Demand",
    "auto_backend",
    "auto_threads",
    "available_cores",
    "has_compiler",
    "lacks_bfloat16",
    "most_threads",
    "one_machine",
    "resolve",
    "with_backend",
    "with_sync_mode",
]

PARTED_FROM = 12_000_000
"""Multiplications of a minibatch in one network from which on more threads make torch faster. Two threads were 1.6
times as fast as one with 256 rows in two layers of 256, and slower than one with 64 rows in two layers of 64."""
CPU_INFO = Path("/proc/cpuinfo")
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Names of the instructions for bfloat16 in ``CPU_INFO``: on x86 the first two, on Arm the last."""
FUSED = "fused"
FUSED_THREADS = 2
"""Fused updates have work for two threads: actor and critic, or the halves of a minibatch."""


@dataclass(frozen=True)
class Demand:
    """The work of an update. It is known once the environment's spaces are known."""

    fused: bool
    """The fused update can run this algorithm and model."""
    multiplications: int
    """Multiplications of one minibatch in the policy's network, a lower bound."""
    gradient_steps: int | None = None
    """Gradient steps of the whole run, if it learns from a table."""
    sync_mode: str = "blocking"
    """The one that suits the algorithm."""
    eager: bool = False
    """Of the updates in torch, only the eager one can run it."""
    sharing: int = 1
    """Learners that own an equal share of the lanes each."""
    agents: int = 1
    """Lanes of one environment, which have one process."""


def one_machine() -> None:
    """In place of the cores of a cluster, for what uses none."""


def with_sync_mode(config: Config, natural: str) -> Config:
    """The same config with ``sync_mode`` decided. ``natural``: the one that suits the algorithm."""
    if config.run.sync_mode != AUTO:
        return config
    return replace(config, run=replace(config.run, sync_mode=natural))


def with_backend(config: Config, demand: Demand) -> Config:
    """The same config with ``backend`` decided. The number of environment processes does not matter to it."""
    run = config.run
    if run.backend != AUTO:
        return config
    backend = auto_backend(run.timesteps, demand, compiler=has_compiler(), gpu=run.device != "cpu")
    return replace(config, run=replace(run, backend=backend))


def resolve(config: Config, demand: Demand, cluster_cores: Callable[[], int | None] = one_machine) -> Config:
    """The same config with ``sync_mode`` and ``backend`` decided for its algorithm, and the others for this machine.

    The user's own number of threads is bounded too: a run may be resumed on a machine with fewer cores.

    Args:
        config: of the run. `check_lanes` has passed.
        demand: of its update.
        cluster_cores: gives those of all machines of a cluster, or ``None`` if there is one machine. It is called only
            if the number of environment processes depends on it.
    """
    config = with_backend(with_sync_mode(config, demand.sync_mode), demand)
    run = config.run
    cores, lock_step = available_cores(), run.sync_mode == "blocking"
    workers = run.num_workers
    if workers == "auto":
        split = {"sharing": demand.sharing, "agents": demand.agents}
        there = cluster_cores()
        workers = (
            auto_num_workers(run.num_envs, cores, lock_step=lock_step, **split)
            if there is None
            else num_workers_of_cluster(run.num_envs, there, **split, asked=_cpus_asked(run))
        )
    check_sharing(workers, demand.sharing)
    threads = run.threads
    if threads == "auto":
        # With a replay table the environments hardly use the cores set aside for them, so the learner may have these.
        claimed = 0 if lock_step or demand.gradient_steps is not None else workers
        threads = auto_threads(run.backend, max(1, (cores - claimed) // run.learners), demand)
    threads = min(threads, most_threads(run.backend, cores))
    decided = replace(run, num_workers=workers, threads=threads)
    return replace(config, run=decided)


def _cpus_asked(run: RunConfig) -> float:
    """Cores that each environment process asks the cluster for."""
    return 0.0 if run.resources is None else run.resources.asked.get("env", {}).get("cpu", 0.0)


def auto_backend(timesteps: int, demand: Demand, *, compiler: bool, gpu: bool) -> str:
    """Fused if it applies; else compiled if that saves time and there is a compiler; else eager.

    On a GPU the compiled update needs no compiler, and is there at once: it always saves time.
    """
    if demand.fused:
        return FUSED
    if demand.eager:
        return "eager"
    if gpu:
        return "compiled"
    if demand.gradient_steps is None:
        pays = timesteps >= COMPILED_PAYS_FROM
    else:
        pays = demand.gradient_steps >= COMPILED_STEPS_PAY_FROM
    return "compiled" if compiler and pays else "eager"


def auto_threads(backend: str, free: int, demand: Demand) -> int:
    """Threads of a learner that has ``free`` cores for itself. The bits of a run may depend on this number.

    The fused update gets at most two. Torch gets all for large minibatches and networks, otherwise one.
    """
    if backend == FUSED:
        return most_threads(backend, free)
    return free if demand.multiplications >= PARTED_FROM else 1


def most_threads(backend: str, cores: int) -> int:
    """The most threads that one learner can use."""
    return min(FUSED_THREADS, cores) if backend == FUSED else cores


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_compiler() -> bool:
    """True if the C++ compiler for the compiled update is installed."""
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")) is not None


def lacks_bfloat16() -> bool:
    """True if this processor is known to have no instructions for bfloat16."""
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = [line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))]
    return bool(flags) and not any(BFLOAT16_FLAGS.intersection(of_core) for of_core in flags)
