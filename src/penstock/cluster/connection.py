"""The connection of this process to a Ray cluster: it joins one, or starts one on this machine."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import ray
from ray._private import services, utils

from penstock.cluster import REMOTE_OUTPUT
from penstock.cluster.listing import cores
from penstock.cluster.own_code import runtime_env
from penstock.cluster.ray_errors import line_of, other_versions
from penstock.config.runtimes import host_and_port
from penstock.errors import ConfigError, NoClusterError, PenstockError

__all__ = ["check_address", "counted", "joined"]

CONNECT_S = 10.0
RAY_ADDRESS = "RAY_ADDRESS"
"""Environment variable: Ray takes its address in place of one that is left out, and in place of ``auto``."""
HEADLESS_S = 180.0
"""Ray ends this process, without a word, so long after its head is lost. Its default, a minute, is too short on a busy
machine: `penstock.cluster.head.HeadWatch` ends the run after 40 s, and what it then saves and says takes its time."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
"""Hosts in whose place Ray puts this machine's own address."""


class _Asked(NamedTuple):
    """The cluster that is asked for."""

    address: str | None
    source: str
    """Where the address comes from, with its value, for messages."""

    @property
    def at(self) -> str:
        """Where the cluster is, in words."""
        return "of this machine" if self.address is None else f"at {self.source}"


@contextlib.contextmanager
def joined(address: str | None, modules: Sequence[str] = ()) -> Iterator[None]:
    """Connect to a cluster within the ``with`` block, or start one on this machine. No effect if already connected.

    Args:
        address: of the cluster, as ``--address`` takes it. ``RAY_ADDRESS`` takes the place of ``None`` and ``auto``.
        modules: top-level modules of the user. Those that are not installed are sent to the machines of the cluster.

    Raises:
        NoClusterError: there is no cluster at this address.
        ConfigError: this is no address, or the user's own code cannot be sent to its machines.
        PenstockError: Ray does not start here.
    """
    if ray.is_initialized():
        yield
        return
    asked = _asked(address)
    _check_address(asked)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", f"{HEADLESS_S:.0f}")
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} if main else {}
    own = {} if asked.address not in {None, "local"} else {"include_dashboard": False}
    try:
        with runtime_env(modules) as own_code:
            _init(asked, **own, runtime_env=own_code)
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
        raise PenstockError(
            f"Ray does not start on this machine: {line_of(error).removesuffix('.')}; the machine may be busy: try "
            "again, or type `ray start --head` first and give --address auto"
        ) from None
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


def check_address(address: str | None) -> None:
    """Check, without joining, that something listens where `joined` would look for a cluster.

    Raises:
        NoClusterError: nothing does.
        ConfigError: this is no address.
    """
    if not ray.is_initialized():
        _check_address(_asked(address))


def _asked(address: str | None) -> _Asked:
    there = os.environ.get(RAY_ADDRESS)
    if there and address in {None, "auto"}:
        return _Asked(there, f"{RAY_ADDRESS}={there}")
    return _Asked(address, f"--address {address}")


def _init(asked: _Asked, **settings: Any) -> None:  # noqa: ANN401 - as `ray.init`
    """Connect to a cluster, or start one.

    Raises:
        NoClusterError: there is none at this address.
        ConfigError: it has another version of Ray or of Python.
    """
    # Ray itself would always pass on what is printed, and mix it into the display.
    settings |= {"log_to_driver": os.environ.get(REMOTE_OUTPUT, "") not in {"", "0"}, "logging_level": logging.ERROR}
    error = _failed(asked.address, settings)
    if error is not None and asked.address is None and other_versions(error) is None:
        # A cluster was found on this machine, and settings of a new one do not fit it.
        settings.pop("include_dashboard", None)
        again = _failed("auto", settings)
        # If no cluster is found now, the first error says more.
        error = error if isinstance(again, ConnectionError) else again
    if error is None:
        return
    if (versions := other_versions(error)) is not None:
        raise ConfigError(f"the Ray cluster {asked.at} {versions}; install the same versions on all machines")
    # Ray's advice stands in its further sentences. It does not fit this command.
    raise _no_cluster(asked, line_of(error).partition(". ")[0].removesuffix("."), _with_token(asked))


def _failed(address: str | None, settings: dict[str, Any]) -> Exception | None:
    """Connect as `ray.init` does. Gives the error; ``None`` if there is none."""
    try:
        with _sessions_of_their_own():
            ray.init(address=address, **settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        return error
    return None


@contextlib.contextmanager
def _sessions_of_their_own() -> Iterator[None]:
    """Within the ``with`` block, Ray's processes start outside the process group of this one.

    `timeout`, a terminal that closes and batch systems signal the whole group. This process ends a run in order then,
    for which it needs Ray. Ray has no setting for this. A version of Ray that starts its processes in another way
    leaves them in the group.
    """
    starts = getattr(services, "ConsolePopen", None)
    if starts is None:
        yield
        return
    services.ConsolePopen = partial(starts, start_new_session=True)
    try:
        yield
    finally:
        services.ConsolePopen = starts


def _check_address(asked: _Asked) -> None:
    """Check that something listens at ``host:port``. Ray itself would try for two minutes.

    Raises:
        NoClusterError: nothing does; or Ray would take the cluster that was started here last, and nothing is left of
            it.
        ConfigError: this is no address, or no machine has this name, or the head listens on the loopback device alone.
    """
    address = asked.address
    if address is None:
        last = utils.read_ray_address()
        if last is not None and not _runs_here(last):
            raise _no_cluster(asked, f"Ray has noted {last}, and no process of that cluster runs here")
        return
    parts = host_and_port(address, asked.source)
    if parts is None:
        return
    host, port = parts
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except UnicodeError:
        raise ConfigError(f"{asked.source}: {host} is no name of a machine; write host:port of its head") from None
    except OSError as error:
        raise _no_cluster(asked, error.strerror or str(error)) from None
    if host not in _LOOPBACK:
        return
    own = ray.util.get_node_ip_address()
    try:
        socket.create_connection((own, port), CONNECT_S).close()
    except OSError:
        raise ConfigError(
            f"{asked.source}: the head listens on the loopback device alone, and Ray looks for it at {own}:{port}; "
            "start it without --node-ip-address"
        ) from None


def _runs_here(address: str) -> bool:
    """Whether this machine belongs to the cluster whose head listens at this address: it has a raylet then."""
    # What Ray found earlier in this process may have ended.
    services.find_gcs_addresses.cache_clear()
    return address in services.find_gcs_addresses()


def _no_cluster(asked: _Asked, why: str, token: str = "") -> NoClusterError:
    if asked.address is None:
        return NoClusterError(
            f"a Ray cluster was started on this machine and does not answer: {why}; --address local starts another, "
            "or type ray stop to end what is left of it"
        )
    return NoClusterError(
        f"no Ray cluster answers {asked.at}: {why}; `ray start --head` starts one, and with --address local this run "
        f"starts its own{token}"
    )


def _with_token(asked: _Asked) -> str:
    """What to type if the cluster asks for a token: given an address, Ray sends its token only if it is told to."""
    if asked.address in {None, "auto", "local"} or "RAY_AUTH_MODE" in os.environ:
        return ""
    found = "" if os.environ.get(RAY_ADDRESS) else "--address auto, or "
    return f"; if it is there and asks for a token: {found}set RAY_AUTH_MODE=token"
