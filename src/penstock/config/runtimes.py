"""What ``--runtime``, ``--distributed`` and ``--address`` ask for together, of a run and of an evaluation."""

from penstock.errors import ConfigError
from penstock.registry import RUNTIMES

__all__ = ["CLUSTER", "check_runtime", "host_and_port", "runtime_of"]

CLUSTER = "ray"
"""The runtime that ``--distributed True`` stands for."""
LAST_PORT = 65_535


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
    """Check that what only a cluster has is asked of a cluster, and how the address is written.

    Raises:
        ConfigError: it is asked of another runtime, there is no such runtime, or the address cannot be read.
    """
    machines = RUNTIMES[runtime].machines
    if distributed and not machines:
        raise ConfigError(f"--distributed True is for --runtime ray, not {runtime}; leave out one of the two")
    if address is not None and not machines:
        raise ConfigError("--address names a Ray cluster; give --distributed True, and no other --runtime")
    if address is not None:
        host_and_port(address, f"--address {address}")


def host_and_port(address: str, source: str) -> tuple[str, int] | None:
    """The two parts of ``host:port``; ``None`` for ``auto`` and ``local``. Connects to nothing.

    Args:
        address: of a Ray cluster.
        source: where the address comes from, with its value, for messages.

    Raises:
        ConfigError: this is no address.
    """
    if address in {"auto", "local"}:
        return None
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise ConfigError(f"{source}: write host:port, and begin the run on a machine of the cluster")
    if not host or not port.isdecimal():
        raise ConfigError(f"{source}: write auto, local, or host:port of the cluster's head")
    if len(port) > len(str(LAST_PORT)) or not 1 <= int(port) <= LAST_PORT:
        raise ConfigError(f"{source}: there is no port {port}; ports are 1 to {LAST_PORT:,}")
    return host.strip("[]"), int(port)
