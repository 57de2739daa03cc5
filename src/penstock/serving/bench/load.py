"""A load: clients that ask again as soon as they are answered, each on a connection of its own. Knows no protocol.

All run in this process, which takes a core of its own: on a machine with two cores the server has the other one.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple, cast

import numpy as np
import uvloop

from penstock.errors import ResourceError
from penstock.types import Array

__all__ = ["Conversation", "Measured", "converse"]

_END_SECONDS = 5.0
"""How long a client may take to say its last word."""


class Conversation(NamedTuple):
    """What one client says: first, then again and again, and at the end. Each request gets one reply."""

    first: bytes
    again: Sequence[bytes]
    """Sent in turn."""
    last: bytes
    read: Callable[[bytes], tuple[int, str] | None]
    """Bytes of the reply that begins here, and why it is no answer; ``None``: it is not whole."""


class Measured(NamedTuple):
    """What came back. Latencies in seconds, from sending a tick to its whole reply."""

    ticks: int
    """Requests between the first and the last of each client that were answered."""
    seconds: float
    failures: int
    latency: Array
    """``[ticks]``: of those that were answered."""
    reason: str
    """Of the first failure; empty if there is none."""
    unfinished: Sequence[int]
    """Places of the clients whose last request was not answered."""

    @property
    def rate(self) -> float:
        """Ticks a second."""
        return self.ticks / self.seconds

    def percentile(self, share: float) -> float:
        """The latency that ``share`` percent of the ticks did not exceed."""
        return float(np.percentile(self.latency, share)) if self.ticks else float("nan")

    def line(self) -> str:
        """The figures in one line."""
        p50, p99, longest = (f"{1000 * self.percentile(share):.3f} ms" for share in (50, 99, 100))
        why = f", the first: {self.reason}" if self.reason else ""
        return f"{self.rate:,.0f} ticks/s, p50 {p50}, p99 {p99}, longest {longest}, {self.failures} failures{why}"


def converse(
    host: str, port: int, conversations: Sequence[Conversation], seconds: float, tls: ssl.SSLContext | None = None
) -> Measured:
    """Let a client hold each conversation for ``seconds``, over TLS if that is given.

    Raises:
        ResourceError: the server cannot be reached.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_converse(host, port, conversations, seconds, tls))


async def _converse(
    host: str, port: int, conversations: Sequence[Conversation], seconds: float, tls: ssl.SSLContext | None
) -> Measured:
    loop = asyncio.get_running_loop()
    clients = [_Client(conversation) for conversation in conversations]
    try:
        for client in clients:
            await loop.create_connection(lambda one=client: one, host, port, ssl=tls)
    except OSError as error:
        raise ResourceError(f"cannot connect to {host}:{port}: {error.strerror or error}") from None
    began = perf_counter()
    for client in clients:
        client.begin()
    await asyncio.sleep(seconds)
    for client in clients:
        client.ends = True
    taken = perf_counter() - began
    latency = np.array([value for client in clients for value in client.latency])
    await asyncio.wait([asyncio.ensure_future(client.gone.wait()) for client in clients], timeout=_END_SECONDS)
    failed = [client for client in clients if client.failures]
    failures = sum(client.failures for client in failed)
    unfinished = [place for place, client in enumerate(clients) if not client.has_stopped]
    return Measured(len(latency), taken, failures, latency, failed[0].reason if failed else "", unfinished)


class _Client(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, conversation: Conversation) -> None:
        self.latency: list[float] = []
        self.failures = 0
        self.reason = ""
        self.ends = False
        self.has_stopped = False
        self.gone = asyncio.Event()
        self._says = conversation
        self._buffer = b""
        self._number = -1
        self._sent = 0.0
        self._stops = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def begin(self) -> None:
        self.transport.write(self._says.first)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        if not self.has_stopped:
            self._failed("the server closed the connection; its log says why")
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        found = self._says.read(self._buffer)
        if found is None or len(self._buffer) < found[0]:
            return
        now = perf_counter()
        self._buffer = b""
        if found[1]:
            self._failed(found[1])
        if self._stops:
            self.has_stopped = True
            self.transport.close()
            return
        if self._number >= 0 and not found[1]:
            self.latency.append(now - self._sent)
        self._number += 1
        if self.ends:
            self._stops = True
            self.transport.write(self._says.last)
            return
        self._sent = now
        self.transport.write(self._says.again[self._number % len(self._says.again)])

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.reason = self.reason or why
