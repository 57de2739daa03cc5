"""Finds out whether a machine of a cluster is there. Does not ask Ray, which notices a loss only after a minute."""

import contextlib
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Door"]

KNOCK_S = 2.0


class Door(NamedTuple):
    """Where Ray listens on a machine."""

    address: str
    port: int

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "Door":
        """The door of a machine, as ``ray.nodes()`` tells of it."""
        return cls(str(node["NodeManagerAddress"]), int(node["NodeManagerPort"]))

    @classmethod
    def at(cls, address: str) -> "Door":
        """The door at ``host:port``."""
        host, _, port = address.rpartition(":")
        return cls(host.strip("[]"), int(port))

    def opens(self) -> bool:
        """Whether Ray on that machine takes a connection now. Waits for two seconds at most."""
        with contextlib.suppress(OSError), socket.create_connection(self, KNOCK_S):
            return True
        return False
