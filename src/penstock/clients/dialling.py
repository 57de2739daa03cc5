"""Dialling: connections of the clients that wait. Sends no request."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator

from penstock.clients.frames import Greeting
from penstock.clients.session import Reach, untrusted
from penstock.clients.wire import EpisodeLostError, bracketed

__all__ = ["dialled", "received", "welcomed"]

_CHUNK = 1 << 16
"""Bytes that are read at a time."""


def dialled(reach: Reach) -> socket.socket:
    """A connection on which nothing was said yet.

    Raises:
        EpisodeLostError: there is no server.
        ConfigError: its certificate is not trusted.
    """
    address = reach.address
    try:
        made = socket.create_connection((address.host, address.port), reach.timeout)
    except OSError as error:
        why = error.strerror or str(error) or f"none within {reach.timeout:g} s"
        raise EpisodeLostError(f"no server at {bracketed(address.host)}:{address.port}: {why}") from None
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if reach.tls is None:
        return made
    try:
        return reach.tls.wrap_socket(made, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        raise untrusted(error) from None


def welcomed(reach: Reach) -> socket.socket | None:
    """A connection that speaks version 2; ``None``: the server has closed it, as one of version 1 does.

    Raises:
        EpisodeLostError: there is no server, or its bytes are no welcome.
        RefusedError: the server refuses the token.
        ConfigError: its certificate is not trusted.
    """
    connection, greeting = dialled(reach), Greeting(reach.token, reach.policy)
    with contextlib.ExitStack() as unless_welcome:
        unless_welcome.callback(connection.close)
        with contextlib.suppress(ConnectionError):
            connection.sendall(greeting.request)
            for data in received(connection, reach.timeout):
                if greeting.feed(data):
                    unless_welcome.pop_all()
                    return connection
    return None


def received(connection: socket.socket, timeout: float) -> Iterator[bytes]:
    """What comes on a connection, until it is closed.

    Args:
        connection: one that waits for ``timeout`` seconds.
        timeout: the longest time for all that comes.

    Raises:
        TimeoutError: it took longer.
    """
    until = time.monotonic() + timeout
    try:
        while data := connection.recv(_CHUNK):
            yield data
            if (left := until - time.monotonic()) <= 0.0:
                raise TimeoutError("timed out")
            connection.settimeout(left)
    finally:
        # The socket may be closed by now.
        with contextlib.suppress(OSError):
            connection.settimeout(timeout)
