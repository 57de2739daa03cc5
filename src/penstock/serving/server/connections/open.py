"""Connections: those that are open, and which of them gives way to a new one. Reads and writes nothing."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.serving.server.connections.connection import Connection

__all__ = ["Connections"]


class Connections:
    """The open connections of a server, ordered by the time of the last request, the oldest first.

    Before its first request, a connection counts from its opening. Only whole requests count. So a client cannot stay
    young by sending single bytes.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[Connection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator["Connection"]:
        return iter(self._open)

    def add(self, connection: "Connection") -> None:
        """A client has connected."""
        self._open[connection] = None

    def asked(self, connection: "Connection") -> None:
        """A request of this connection was taken, so it is the last that gives way."""
        self._open.move_to_end(connection)

    def discard(self, connection: "Connection") -> None:
        """The connection is closed, or was so before."""
        self._open.pop(connection, None)

    def most_silent(self) -> "Connection | None":
        """The first one that may give way: no session depends on it, and no reply is due; ``None``: each is needed."""
        return next((connection for connection in self._open if connection.may_give_way()), None)
