"""The connection of this process to a Ray cluster: it joins one, or starts one on this machine."""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._private import services, utils
from ray._private.worker import global_worker

from penstock.cluster import REMOTE_OUTPUT
from penstock.cluster.asked_cluster import RAY_AUTH_MODE, AskedCluster, asked_cluster, does_not_start, same_head
from penstock.cluster.listing import cores
from penstock.cluster.own_code import runtime_env, to_send
from penstock.cluster.ray_errors import line_of, other_versions
from penstock.cluster.ray_variables import ray_variables
from penstock.errors import ConfigError, PenstockError
from penstock.processes.interrupts import Interrupts

__all__ = ["check_address", "counted", "joined"]

_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""What Ray is told unless the user's environment says otherwise."""
_BY_JOINED = threading.Event()
"""Set while this process is connected by `joined`, and not by a call of ``ray.init`` in the user's program."""


@contextlib.contextmanager
def joined(address: str | None, modules: Sequence[str] = ()) -> Iterator[None]:
    """Connect to a cluster within the ``with`` block, or start one on this machine.

    If this process is connected already, that connection is used, and stays afterwards.

    Args:
        address: of the cluster, as ``--address`` takes it. ``RAY_ADDRESS`` takes the place of ``None`` and ``auto``.
        modules: top-level modules of the user. Those that are not installed are sent to the machines of the cluster.

    Raises:
        NoClusterError: there is no cluster at this address.
        ConfigError: this is no address, or the user's own code cannot be sent to its machines.
        PenstockError: Ray does not start here, or this process is in a directory that was removed.
        KeyboardInterrupt: on Ctrl-C or SIGTERM while Ray starts, once it has started and ended. A second one: at once.
    """
    if ray.is_initialized():
        _check_connection(address, modules)
        yield
        return
    asked = asked_cluster(address)
    asked.check()
    _check_directory()
    with ray_variables({name: value for name, value in _VARIABLES.items() if name not in os.environ}):
        yield from _joined(asked, modules)


def _check_directory() -> None:
    """Check that the working directory of this process still exists, because Ray asks for its name.

    Raises:
        PenstockError: the working directory was removed.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise PenstockError("the current directory was removed, and Ray needs one; change to another one") from None


def _joined(asked: AskedCluster, modules: Sequence[str]) -> Iterator[None]:
    """As `joined`, if this process is not connected."""
    own = {} if asked.address not in {None, "local"} else {"include_dashboard": False}
    try:
        # Raised inside Ray, an interrupt may be lost, and processes that Ray has begun to start outlive this one.
        with Interrupts(patience=1) as interrupts, runtime_env(modules) as own_code:
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
        raise PenstockError(does_not_start(line_of(error).removesuffix("."))) from None
    except KeyboardInterrupt:
        ray.shutdown()
        raise
    if interrupts.count:
        ray.shutdown()
        raise KeyboardInterrupt
    _BY_JOINED.set()
    try:
        yield
    finally:
        _BY_JOINED.clear()
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
    if ray.is_initialized():
        _check_connection(address, ())
    else:
        asked_cluster(address).check()


def _check_connection(address: str | None, modules: Sequence[str]) -> None:
    """Check that a run can use the connection that the user's program made by ``ray.init``, if it made one.

    Whether a ``runtime_env`` that the program gave holds the right modules is not checked.

    Raises:
        ConfigError: it is one to another cluster, or does not bring the user's own modules to the other machines.
    """
    if _BY_JOINED.is_set() or global_worker.mode != ray.SCRIPT_MODE:
        return
    context = ray.get_runtime_context()
    if address not in {None, "auto"} and (address == "local" or not same_head(address, context.gcs_address)):
        raise ConfigError(
            f"address is {address}, and this program is connected to the Ray cluster at {context.gcs_address} already, "
            "by ray.init; leave out address, or call ray.shutdown() first"
        )
    if cores() is None or {"working_dir", "py_modules"} & set(context.runtime_env):
        return
    if named := to_send(modules):
        raise ConfigError(
            f"other machines of the cluster do not have {named[0].name}, because this program has called ray.init "
            'itself; give ray.init runtime_env={"working_dir": ...}, or leave the call out'
        )


def _init(asked: AskedCluster, **settings: Any) -> None:  # noqa: ANN401 - as `ray.init`
    """Connect to a cluster, or start one.

    Raises:
        NoClusterError: there is none at this address.
        ConfigError: it has another version of Ray or of Python, or this machine has no token for it.
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
    if isinstance(error, ray.exceptions.AuthenticationError):
        raise ConfigError(
            f"{RAY_AUTH_MODE} is token, and this machine has no token for the Ray cluster {asked.at}; copy "
            "~/.ray/auth_token of the head's machine to the same place here"
        )
    if (versions := other_versions(error)) is not None:
        raise ConfigError(f"the Ray cluster {asked.at} {versions}; install the same versions on all machines")
    # Ray's advice stands in its further sentences. It does not fit this command.
    raise asked.not_there(line_of(error).partition(". ")[0].removesuffix("."), asked.with_token())


def _failed(address: str | None, settings: dict[str, Any]) -> Exception | None:
    """Connect as `ray.init` does. Gives the error; ``None`` if there is none."""
    try:
        with _sessions_of_their_own(), _handlers_kept():
            ray.init(address=address, **settings)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.AuthenticationError) as error:
        return error
    return None


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Within the ``with`` block, Ray leaves the handler of SIGTERM as it is. Its own would end this process at once.

    Ray has no setting for this.
    """
    sets = getattr(utils, "set_sigterm_handler", None)
    if sets is None:
        yield
        return
    utils.set_sigterm_handler = lambda _handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = sets


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
