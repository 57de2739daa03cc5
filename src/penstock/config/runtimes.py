"""What ``--runtime``, ``--distributed`` and ``--address`` ask for together, of a run and of an evaluation."""

from penstock.errors import ConfigError
from penstock.registry import RUNTIMES

__all__ = ["CLUSTER", "check_runtime", "runtime_of"]

CLUSTER = "ray"
"""The runtime that ``--distributed True`` stands for."""


def runtime_of(runtime: str | None, *, distributed: bool, default: str) -> str:
    """The name of the runtime that is asked for.

    Args:
        runtime: ``--runtime``; ``None``: it is not given.
        distributed: ``--distributed``.
        default: where neither is given.
    """
    if runtime is not None:
        return runtime
    return CLUSTER if distributed else default


def check_runtime(runtime: str, *, distributed: bool, address: str | None) -> None:
    """Check that what only a cluster has is asked of a cluster.

    Raises:
        ConfigError: it is asked of another runtime, or there is no such runtime.
    """
    machines = RUNTIMES[runtime].machines
    if distributed and not machines:
        raise ConfigError(f"--distributed True is for --runtime ray, not {runtime}; leave out one of the two")
    if address is not None and not machines:
        raise ConfigError(f"--address names a Ray cluster; give --distributed True in place of --runtime {runtime}")
