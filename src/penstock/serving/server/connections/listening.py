"""Whether a port can be listened on, and what to say if it cannot. Keeps no socket open."""

import errno
import os
import socket

from penstock.clients.wire import bracketed
from penstock.errors import ResourceError

__all__ = ["cannot_listen", "check_free"]


def check_free(host: str, port: int, instead: str) -> None:
    """Check that a port can be listened on.

    Args:
        host: the address.
        port: 0: a free one.
        instead: what to type if the port cannot be used.

    Raises:
        ResourceError: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # It does not listen: a client that waits for the port would be cut off.
            probe.bind((host, port))
    except OSError as error:
        raise cannot_listen(host, port, instead, error) from None


def cannot_listen(host: str, port: int, instead: str, error: OSError) -> ResourceError:
    """The error for a port that cannot be listened on: why, and what to type."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return ResourceError(f"cannot listen on {host}: {_why(error)}; give another --host, as 127.0.0.1")
    return ResourceError(f"cannot listen on {bracketed(host)}:{port}: {_why(error)}; {instead}")


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    # The text of asyncio's own error repeats the address.
    return os.strerror(error.errno) if error.errno else str(error)
