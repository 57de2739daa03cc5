"""Line: a connection of a coroutine's client, on which one request at a time is answered. Knows no protocol.

Without streams of asyncio, and with one timer for all requests, a tick takes 30 % less of the client's time.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.clients.wire import EpisodeLostError, Wire, closed
from penstock.errors import PenstockError

__all__ = ["ClosedLineError", "Line"]

_T = TypeVar("_T")


class ClosedLineError(EpisodeLostError):
    """The server has closed the connection."""


class Line(asyncio.Protocol):
    """An open connection.

    Args:
        timeout: longest time for one reply, in seconds.

    Attributes:
        wire: what its requests and replies look like; set by its user.
    """

    wire: Wire

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._transport: asyncio.Transport | None = None
        self._feed: Callable[[bytes], Any] | None = None
        self._hint = ""
        self._reply: asyncio.Future[Any] | None = None
        self._until = 0.0
        """When the reply is due."""
        self._timer: asyncio.TimerHandle | None = None
        self._lost: Exception | None = None

    async def ask(self, request: Callable[[], bytes], feed: Callable[[bytes], _T | None], hint: str) -> _T:
        """Send a request and wait for its reply.

        Args:
            request: makes its bytes. It is called only if no other request waits.
            feed: takes bytes that have arrived, and returns the reply once it is whole. Its errors are raised here.
            hint: what a closed connection may mean.

        Raises:
            OSError: the connection broke, or there was no reply in time.
            ClosedLineError: the server has closed the connection.
        """
        if self._reply is not None and not self._reply.done():
            raise RuntimeError("a client asks for one thing at a time; give each task a client of its own")
        if self._lost is not None or self._transport is None:
            raise self._lost or ClosedLineError(str(closed(hint)))
        sent = request()
        self._feed, self._hint = feed, hint
        self._reply = self._loop.create_future()
        self._until = self._loop.time() + self._timeout
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look)
        self._transport.write(sent)
        found: _T = await self._reply
        return found

    def close(self) -> None:
        """Close the connection. A request that waits ends with an error, and is not sent any further."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()
        elif self._transport is not None:
            self._transport.close()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionAbortedError("the client was closed"))

    def forget(self) -> None:
        """Close the connection of a client that nobody has any more, if its event loop still runs."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server has taken the connection."""
        # uvloop's transports do what asyncio's do, without deriving from them.
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """A part of the reply has arrived, or all of it."""
        reply = self._reply
        if reply is None or reply.done() or self._feed is None:
            return
        try:
            found = self._feed(data)
        except PenstockError as error:
            reply.set_exception(error)
        else:
            if found is not None:
                reply.set_result(found)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has closed the connection, or it broke."""
        self._lost = exc or ClosedLineError(str(closed(self._hint)))
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(self._lost)

    def _look(self) -> None:
        """The time is over for the request that the timer was set for; there may be a later one."""
        self._timer = None
        if self._reply is None or self._reply.done():
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self._reply.set_exception(TimeoutError(f"none within {self._timeout:g} s"))
