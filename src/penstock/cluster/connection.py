"""The connection of this process to a Ray cluster: it joins one, or starts one on this machine."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import ray

from penstock.cluster.listing import cores
from penstock.cluster.own_code import runtime_env
from penstock.cluster.ray_errors import line_of
from penstock.errors import ConfigError, PenstockError

__all__ = ["counted", "joined"]

CONNECT_S = 10.0
REMOTE_OUTPUT = "PENSTOCK_REMOTE_OUTPUT"
"""Environment variable: the launcher shows what processes on other machines print, unless it is empty or 0."""


@contextlib.contextmanager
def joined(address: str | None, modules: Sequence[str] = ()) -> Iterator[None]:
    """Connect to a cluster within the ``with`` block, or start one on this machine. No effect if already connected.

    Args:
        address: of the cluster, as ``--address`` takes it.
        modules: top-level modules of the user. Those that are not installed are sent to the machines of the cluster.

    Raises:
        ConfigError: there is no cluster at this address, or the user's own code cannot be sent to its machines.
        PenstockError: Ray does not start here.
    """
    if ray.is_initialized():
        yield
        return
    _check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} if main else {}
    own = {} if address not in {None, "local"} else {"include_dashboard": False}
    try:
        with runtime_env(modules) as own_code:
            _init(address, **own, runtime_env=own_code)
    except ray.exceptions.RuntimeEnvSetupError as error:
        why = line_of(error).partition(". ")[0]
        raise ConfigError(
            f"modules of your own cannot be sent to other machines: {why}; name in a file .gitignore in your package "
            "what it does not need, or install it on every machine"
        ) from None
    except Exception as error:
        # Ray raises this very class, and none below it, if it takes longer than half a minute to start.
        if type(error) is not Exception:
            raise
        raise PenstockError(f"Ray does not start on this machine: {line_of(error)}") from None
    finally:
        # Ray puts its own handlers in place of the launcher's.
        for number, handler in handlers.items():
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def counted(address: str | None, modules: Sequence[str]) -> Iterator[int | None]:
    """As `joined`. Gives the cores of all machines of the cluster; ``None`` if this one is the only one."""
    with joined(address, modules):
        yield cores()


def _init(address: str | None, **settings: Any) -> None:  # noqa: ANN401 - as `ray.init`
    """Connect to a cluster, or start one.

    Raises:
        ConfigError: there is none at this address.
    """
    # Ray itself would always pass on what is printed, and mix it into the display.
    settings |= {"log_to_driver": os.environ.get(REMOTE_OUTPUT, "") not in {"", "0"}, "logging_level": logging.ERROR}
    try:
        ray.init(address=address, **settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address is None:
            # A cluster was found on this machine, and settings of a new one do not fit it.
            settings.pop("include_dashboard", None)
            with contextlib.suppress(ConnectionError):
                ray.init(address="auto", **settings)
        if not ray.is_initialized():
            raise _no_cluster(address, f"{line_of(error)}{_without_token(address)}") from None


def _check_address(address: str | None) -> None:
    """Check that something listens at ``host:port``. Ray itself would try for two minutes.

    Raises:
        ConfigError: nothing does, or this is no address.
    """
    if address is None or address in {"auto", "local"}:
        return
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise ConfigError(f"--address {address}: write host:port, and begin the run on a machine of the cluster")
    if not host or not port.isdigit():
        raise ConfigError(f"--address {address}: write auto, local, or host:port of the cluster's head")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from None


def _no_cluster(address: str | None, why: str) -> ConfigError:
    if address is None:
        return ConfigError(
            f"a Ray cluster was started on this machine and does not answer: {why}; --address local starts another, "
            "or type ray stop to end what is left of it"
        )
    return ConfigError(
        f"no Ray cluster answers at --address {address}: {why}; `ray start --head` starts one, and with "
        "--address local this run starts its own"
    )


def _without_token(address: str | None) -> str:
    """What to type if the cluster asks for a token: given an address, Ray sends its token only if it is told to."""
    if address in {None, "auto", "local"} or "RAY_AUTH_MODE" in os.environ:
        return ""
    return " without a token (with one: --address auto, or set RAY_AUTH_MODE=token)"
