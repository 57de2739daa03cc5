"""Bases: the bodies that deltas of one connection refer to, one for each session. Knows no frames.

A base is the body of a session's latest tick that came as a key frame or as a delta, and was taken. Each delta names
the request that brought its base. So a client that waits for its replies names a body that is acknowledged.
"""

from http import HTTPStatus
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.gamecore.frames import Encoding
from penstock.registry import load
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.protocols.gamecore.framing import Request

__all__ = ["Bases"]

_ENTRY = 1024
"""Bytes that a base counts beside its body, so that many empty bodies reach the limit, too."""


class _Base(NamedTuple):
    number: int
    """Id of the request that brought it."""
    body: bytes


class Bases:
    """The bases of one connection.

    Args:
        limit: bytes of one body, and of all bases together. Beyond it the oldest bases are forgotten, and the client is
            asked for a key frame.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bases: dict[bytes, _Base] = {}
        self._size = 0

    def body(self, request: Request) -> bytes:
        """The whole body of a request.

        Raises:
            Refusal: its base is not here (412); it is no delta against it, or its body is too large (400).
        """
        if request.encoding is not Encoding.DELTA:
            return request.body
        base = self._bases.get(request.session)
        if base is None or base.number != request.base:
            text = f"the body of request {request.base}, to which this delta refers, is not here; send a key frame"
            raise Refusal(HTTPStatus.PRECONDITION_FAILED, text)
        try:
            # Imported on use: most games send no deltas.
            body: bytes = load("penstock.gamecore.delta:decode")(base.body, request.body, self._limit)
        except PenstockError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        return body

    def keep(self, request: Request, body: bytes) -> None:
        """A tick that is a key frame or a delta was taken: its body is the base of the session's next delta."""
        self.drop(request.session)
        self._bases[request.session] = _Base(request.number, body)
        self._size += len(body) + _ENTRY
        while self._size > self._limit and len(self._bases) > 1:
            self.drop(next(iter(self._bases)))

    def drop(self, session: bytes) -> None:
        """Forget the base of a session."""
        base = self._bases.pop(session, None)
        if base is not None:
            self._size -= len(base.body) + _ENTRY
