"""The Ray cluster that a user asks for: where it is, and whether anything is there."""

import contextlib
import os
import socket
from typing import NamedTuple

import ray
from ray._private import services, utils

from penstock.config.runtimes import host_and_port
from penstock.errors import ConfigError, NoClusterError

__all__ = ["AskedCluster", "asked_cluster", "does_not_start", "same_head"]

CONNECT_S = 10.0
RAY_ADDRESS = "RAY_ADDRESS"
"""Environment variable: Ray takes its address in place of one that is left out, and in place of ``auto``."""
RAY_AUTH_MODE = "RAY_AUTH_MODE"
"""Environment variable: whether Ray sends a token."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
"""Hosts in whose place Ray puts this machine's own address."""


class AskedCluster(NamedTuple):
    """The cluster that is asked for."""

    address: str | None
    source: str
    """Where the address comes from, with its value, for messages."""

    @property
    def at(self) -> str:
        """Where the cluster is, in words."""
        return "of this machine" if self.address is None else f"at {self.source}"

    @property
    def starts_here(self) -> bool:
        """Whether Ray starts a new cluster on this machine, because there is none or another one is asked for."""
        return self.address == "local" or (self.address is None and utils.read_ray_address() is None)

    def check(self) -> None:
        """Check that something listens where Ray would look for the cluster. Ray itself would try for two minutes.

        Raises:
            NoClusterError: nothing does; or Ray would take a cluster of this machine that has ended.
            ConfigError: this is no address, or no machine has this name, or the head listens on the loopback device
                alone.
        """
        if self.address is None or self.address == "auto":
            self._check_found()
            return
        parts = host_and_port(self.address, self.source)
        if parts is None:
            return
        host, port = parts
        try:
            socket.create_connection((host, port), CONNECT_S).close()
        except UnicodeError:
            raise ConfigError(f"{self.source}: {host} is no name of a machine; write host:port of its head") from None
        except OSError as error:
            raise self.not_there(error.strerror or str(error)) from None
        if host not in _LOOPBACK:
            return
        own = ray.util.get_node_ip_address()
        try:
            socket.create_connection((own, port), CONNECT_S).close()
        except OSError:
            raise ConfigError(
                f"{self.source}: the head listens on the loopback device alone, and Ray looks for it at {own}:{port}; "
                "start it without --node-ip-address"
            ) from None

    def not_there(self, why: str, more: str = "") -> NoClusterError:
        """The error that says that the cluster does not answer, or does not start, and what to type.

        Args:
            why: Ray's words, or the system's.
            more: what else may help where an address was given.
        """
        if self.starts_here:
            return NoClusterError(does_not_start(why))
        if self.address is None:
            return NoClusterError(
                f"a Ray cluster was started on this machine and does not answer: {why}; --address local starts "
                "another, or type ray stop to end what is left of it"
            )
        return NoClusterError(
            f"no Ray cluster answers {self.at}: {why}; `ray start --head` starts one, and with --address local this "
            f"run starts its own{more}"
        )

    def _check_found(self) -> None:
        """Check the cluster that Ray finds on this machine, if it finds one.

        Raises:
            NoClusterError: nothing is left of it here, or nothing listens at its address.
        """
        # What Ray found earlier in this process may have ended.
        services.find_gcs_addresses.cache_clear()
        running = services.find_gcs_addresses()
        found = utils.read_ray_address()
        if self.address == "auto" and (len(running) == 1 or found is None):
            # Ray takes the only cluster whose processes run here, whatever it has noted.
            found = next(iter(running), None)
        if found is None:
            return
        if found not in running:
            raise self.not_there(f"Ray has noted {found}, and no process of that cluster runs here")
        try:
            socket.create_connection(_parts(found), CONNECT_S).close()
        except OSError as error:
            raise NoClusterError(
                f"Ray's processes run on this machine, and their head at {found} is not reached: "
                f"{error.strerror or error}; if it has ended, type `ray stop`; if it is in a container, type the "
                "command there; or give --address local to start another cluster"
            ) from None

    def with_token(self) -> str:
        """What to type if the cluster asks for a token: given an address, Ray sends its token only if told to."""
        if self.address in {None, "auto", "local"}:
            return ""
        mode = os.environ.get(RAY_AUTH_MODE)
        if mode == "token":
            return "; if it is there, it may ask for another token than this machine has"
        found = "" if mode or os.environ.get(RAY_ADDRESS) else "--address auto, or "
        return f"; if it is there and asks for a token: {found}set {RAY_AUTH_MODE}=token"


def does_not_start(why: str) -> str:
    """The message of a cluster that does not start on this machine."""
    return (
        f"Ray does not start on this machine: {why}; the machine may be busy: try again, or type `ray start --head` "
        "first and give --address auto"
    )


def same_head(one: str, other: str) -> bool:
    """Whether two addresses, as ``host:port``, are those of one head, seen from this machine."""
    return _resolved(one) == _resolved(other)


def _resolved(address: str) -> tuple[str, int]:
    host, port = _parts(address)
    if host in _LOOPBACK:
        return ray.util.get_node_ip_address(), port
    with contextlib.suppress(OSError, UnicodeError):
        return socket.gethostbyname(host), port
    return host, port


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def asked_cluster(address: str | None) -> AskedCluster:
    """The cluster that ``--address`` and Ray's environment variable ask for."""
    there = os.environ.get(RAY_ADDRESS)
    if there and address in {None, "auto"}:
        return AskedCluster(there, f"{RAY_ADDRESS}={there}")
    return AskedCluster(address, f"--address {address}")
