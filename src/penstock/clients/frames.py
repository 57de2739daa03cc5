"""Version 2 of Gamecore over TCP, for all clients: the greeting, then replies with a status. Opens no socket."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from penstock.clients.wire import BaseMissingError, EpisodeLostError, RefusedError, key_of
from penstock.gamecore.frames import (
    BASE_MISSING,
    GREETING,
    KINDS,
    MAGIC,
    REPLY,
    REQUEST,
    VERSION,
    WELCOME,
    Encoding,
)

__all__ = ["FrameWire", "Greeting", "Replies", "frame"]

_MAX_REPLY = 1 << 30
_MAX_TEXT = 64 << 10
_OK = 200
_KINDS = {kind.decode(): number for number, kind in enumerate(KINDS)} | {"end": KINDS.index(b"stop")}


class Greeting:
    """The first bytes of a connection. A server that speaks only version 1 closes it."""

    def __init__(self, token: str, policy: str) -> None:
        key, shown = key_of(policy), token.encode()
        self.request = b"".join((GREETING.pack(MAGIC, VERSION, len(key), len(shown)), key, shown))
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bool:
        """Take bytes that have arrived. True: the server speaks version 2 and takes requests.

        Raises:
            RefusedError: the server refuses the token.
            EpisodeLostError: the bytes are no welcome.
        """
        self._buffer += data
        if len(self._buffer) < WELCOME.size:
            return False
        magic, version, status, size = WELCOME.unpack_from(self._buffer)
        if magic != MAGIC or version != VERSION or size > _MAX_TEXT:
            raise EpisodeLostError("the server's bytes are no welcome of Gamecore")
        if len(self._buffer) < WELCOME.size + size:
            return False
        if status != _OK:
            raise RefusedError(status, _text(self._buffer[WELCOME.size :]))
        return True


class _Base(NamedTuple):
    """A body that deltas may refer to."""

    number: int
    """Id of the request that held it."""
    body: bytes


class FrameWire:
    """Requests and replies of one connection that was welcomed. Its requests are those of one session.

    Args:
        delta: send ticks as deltas against the tick before, once that was answered.
    """

    hint = ""

    def __init__(self, *, delta: bool = False) -> None:
        self._buffer = bytearray()
        self._number = 0
        # Imported on use: a client without deltas needs no compiled module.
        self._encode: Callable[[bytes, bytes], bytes | None] | None = (
            import_module("penstock.gamecore.delta").encode if delta else None
        )
        self._base: _Base | None = None
        """The latest tick that the server has answered."""
        self._asked: _Base | None = None
        """The tick that waits for its answer."""

    def request(self, kind: str, session: str, body: bytes) -> bytes:
        """See `Wire`."""
        place = _place(kind)
        self._buffer.clear()
        self._number += 1
        encoding, base, sent = Encoding.PLAIN, 0, body
        if kind == "tick" and self._encode is not None:
            encoding, base, sent = self._packed(self._encode, body)
            self._asked = _Base(self._number, body)
        else:
            self._base = self._asked = None
        name = session.encode()
        head = REQUEST.pack(self._number, base, len(sent), len(name), place, encoding, 0)
        return b"".join((head, name, sent))

    def feed(self, data: bytes) -> bytes | None:
        """See `Wire`."""
        self._buffer += data
        if len(self._buffer) < REPLY.size:
            return None
        number, size, status, _, _ = REPLY.unpack_from(self._buffer)
        if number != self._number or size > _MAX_REPLY:
            raise EpisodeLostError("the server's bytes are no reply of Gamecore")
        if len(self._buffer) < REPLY.size + size:
            return None
        body = bytes(self._buffer[REPLY.size : REPLY.size + size])
        if status == BASE_MISSING:
            self._base = None
            raise BaseMissingError(status, _text(body))
        if status != _OK:
            raise RefusedError(status, _text(body))
        if self._asked is not None:
            self._base = self._asked
        return body

    def _packed(self, encode: Callable[[bytes, bytes], bytes | None], body: bytes) -> tuple[Encoding, int, bytes]:
        """Encoding, id of the base, and what is sent."""
        base = self._base
        delta = None if base is None else encode(base.body, body)
        if base is None or delta is None:
            return Encoding.KEY, 0, body
        return Encoding.DELTA, base.number, delta


class Replies:
    """The replies to requests that were sent together.

    Args:
        first: id of the first request. Those of the others follow it.
        count: how many requests there are.
    """

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count
        self._buffer = bytearray()
        self._found: list[bytes | RefusedError] = []

    def feed(self, data: bytes) -> list[bytes | RefusedError] | None:
        """Take bytes that have arrived. All replies, once they are whole: the body, or why the request was refused.

        Raises:
            EpisodeLostError: the bytes are no reply.
        """
        self._buffer += data
        start = 0
        while len(self._found) < self._count and len(self._buffer) >= start + REPLY.size:
            number, size, status, _, _ = REPLY.unpack_from(self._buffer, start)
            if number != self._first + len(self._found) or size > _MAX_REPLY:
                raise EpisodeLostError("the server's bytes are no reply of Gamecore")
            end = start + REPLY.size + size
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[start + REPLY.size : end])
            self._found.append(body if status == _OK else RefusedError(status, _text(body)))
            start = end
        del self._buffer[:start]
        return self._found if len(self._found) == self._count else None


def frame(number: int, kind: str, session: str, body: bytes) -> bytes:
    """The bytes of a request without deltas."""
    name = session.encode()
    return REQUEST.pack(number, 0, len(body), len(name), _place(kind), Encoding.PLAIN, 0) + name + body


def _place(kind: str) -> int:
    place = _KINDS.get(kind)
    if place is None:
        # Here kinds are numbers, so this one cannot even be sent.
        raise RefusedError(400, f"step_kind is {kind[:40]!r}; wanted start, tick or stop")
    return place


def _text(body: bytes | bytearray) -> str:
    return body.decode(errors="replace") or "refused without a reason"
