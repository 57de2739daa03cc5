"""Connection: what all protocols over a byte stream do alike. Knows no frames.

- Replies leave in the order of their requests.
- A client that sends without reading is not read any more; one that stops in the middle of a request is cut off.
- At the end of the server, accepted requests are answered before the connection is closed.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import cast

from penstock.serving.server.connections.service import Service

__all__ = ["PIPELINED", "Connection", "Reply"]

log = logging.getLogger("penstock.serve")

PIPELINED = 64
"""Requests of one connection that are being answered before no more are read."""
_OVERDUE = 5
"""A reply that is late by this multiple of ``max_seconds`` counts as lost. A full queue and dying workers delay it by
less."""
_LINGER = 1.0
"""Seconds in which a client may read the last replies and close its side."""


class Reply:
    """The place of one reply in its connection's order.

    Attributes:
        since: when the request had arrived whole.
    """

    __slots__ = ("closes", "connection", "data", "since")

    def __init__(self, connection: "Connection", since: float) -> None:
        self.connection = connection
        self.since = since
        self.data: bytes | None = None
        self.closes = False

    def put(self, data: bytes, *, closes: bool = False) -> None:
        """Let these bytes leave as soon as it is their turn.

        Args:
            data: may be empty.
            closes: the connection ends after them.
        """
        self.data = data
        # The server may have ended meanwhile: `Connection.end` has made this reply the last one.
        self.closes = self.closes or closes
        self.connection.flush()


class Connection(asyncio.Protocol, ABC):
    """One client. A protocol derives from it and overrides `received`.

    Attributes:
        transport: set while connected.
        peer: the client's address.
        is_deaf: nothing more is read from the client.
    """

    transport: asyncio.Transport

    def __init__(self, service: Service) -> None:
        self.service = service
        self.peer = ""
        self.is_deaf = False
        self._replies: deque[Reply] = deque()
        self._watched: tuple[Reply | None, float] = (None, 0.0)
        """The reply that `sweep` saw to be next, and when it saw this first."""
        self._is_lost = False
        self._is_paused = False
        self._has_ended = False
        """The client has ended its side."""
        self._unread_since: float | None = None
        """Since when the client reads no replies."""
        self._heard = service.loop.time()
        self.partial_since: float | None = None
        """Since when a request has been arriving; ``None``: none is half here."""

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Bytes have arrived."""

    def may_read_on(self) -> None:
        """There may be room for further requests again. Called where nothing was read because there was none."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        # uvloop's transports do what asyncio's do, without deriving from them.
        self.transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""
        connections = self.service.connections
        if len(connections) >= self.service.limits.max_connections:
            self._make_room()
        connections.add(self)
        self.service.metrics.connections = len(connections)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        """The client is gone, or was dropped. Its sessions live on until they are idle for too long."""
        self._is_lost = self.is_deaf = True
        self._replies.clear()
        self.service.connections.discard(self)
        self.service.metrics.connections = len(self.service.connections)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._heard = self.service.loop.time()
        if not self.is_deaf:
            self.received(data)
            # Where no reply is due, there is room.
            if self._replies and not self.has_room():
                self._pace()

    def eof_received(self) -> bool:
        """The client sends no more. It still gets the replies to what it has asked."""
        self._has_ended = True
        self.partial_since = None
        return bool(self._replies) and self.transport.can_write_eof()

    def pause_writing(self) -> None:
        """The client reads more slowly than it asks."""
        self._unread_since = self.service.loop.time()
        self._pace()

    def resume_writing(self) -> None:
        """The client has read what waited for it."""
        self._unread_since = None
        if self._is_paused:
            self._read_on()

    # What protocols call.

    def has_room(self) -> bool:
        """Whether a further request of this client may be taken."""
        return len(self._replies) < PIPELINED and self._unread_since is None

    def expect(self, reply: Reply) -> None:
        """A request was taken: its reply comes after those before it."""
        self._replies.append(reply)
        self.service.connections.asked(self)

    def flush(self) -> None:
        """Send the replies whose turn it is."""
        if self._is_lost:
            return
        ready = []
        replies = self._replies
        closes = False
        while replies and (data := replies[0].data) is not None:
            ready.append(data)
            closes = replies.popleft().closes
            if closes:
                replies.clear()
        if ready:
            self.transport.write(ready[0] if len(ready) == 1 else b"".join(ready))
        if closes:
            self.finish()
        elif ready and not self.is_deaf:
            if self._is_paused:
                self._read_on()
            if self._has_ended and not replies:
                self.finish()

    def finish(self) -> None:
        """Close the connection after what was written.

        If a socket is closed while it has unread bytes, the client may not get the last replies. So:

        1. The server ends only its own direction.
        2. For a while it reads what the client still sends, and drops it.
        3. Then it closes the connection.

        TLS cannot end one direction alone. There the transport is closed at once. It waits for the client's end itself.
        """
        self.is_deaf = True
        if self._is_lost or self.transport.is_closing():
            return
        if self._has_ended:
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        self._pace()
        self.service.loop.call_later(_LINGER, self.transport.abort)

    def drop(self, why: str) -> None:
        """Close the connection at once, and log why."""
        log.warning("connection of %s closed: %s", self.peer, why)
        self.is_deaf = True
        self.transport.abort()

    # What the server calls.

    def may_give_way(self) -> bool:
        """Whether the connection may be closed in favour of a new one: no reply is due."""
        return not self._replies

    def sweep(self, now: float) -> None:
        """Drop the connection if its client hangs."""
        limits = self.service.limits
        if self.partial_since is not None and now - self.partial_since > limits.max_seconds:
            self.drop(f"a request has not arrived whole within {limits.max_seconds:g} s")
        elif self._unread_since is not None and now - self._unread_since > limits.max_seconds:
            self.drop(f"replies were not read for {limits.max_seconds:g} s")
        elif self._is_overdue(now):
            self.drop(f"a request was not answered within {_OVERDUE * limits.max_seconds:g} s")
        elif self._replies:
            # A client that waits for a reply is not silent.
            self._heard = now
        elif now - self._heard > limits.idle_seconds:
            self.finish()

    def end(self) -> None:
        """The server ends: take no more requests, answer those that were taken, then close."""
        if self.is_deaf:
            return
        self.is_deaf = True
        if self._replies:
            self._replies[-1].closes = True
            self.flush()
        else:
            self.finish()

    def _make_room(self) -> None:
        """Close the most silent connection, because there are too many. If none may be closed, close this one."""
        silent = self.service.connections.most_silent()
        if silent is None:
            self.drop("there are too many connections, and all are in use (--max_connections)")
            return
        silent.drop("it was silent for longest, and there are too many connections (--max_connections)")
        # Its transport tells of the end a moment later; until then further clients may connect.
        self.service.connections.discard(silent)

    def _is_overdue(self, now: float) -> bool:
        """Whether the next reply has been due for so long that it was lost."""
        first = self._replies[0] if self._replies else None
        if first is None or first is not self._watched[0]:
            self._watched = (first, now)
        return first is not None and now - self._watched[1] > _OVERDUE * self.service.limits.max_seconds

    def _read_on(self) -> None:
        """There may be room again: take what waits for it, and read further."""
        self.may_read_on()
        self._pace()

    def _pace(self) -> None:
        """Read from the client only while a request would be taken."""
        pauses = not self.is_deaf and not self.has_room()
        if pauses is self._is_paused or self.transport.is_closing():
            return
        self._is_paused = pauses
        if pauses:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
