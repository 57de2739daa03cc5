"""Version 2 of Gamecore over TCP, for both clients: the greeting, then replies with a status. Opens no socket."""

from penstock.clients.wire import EpisodeLostError, RefusedError
from penstock.gamecore.frames import GREETING, KINDS, MAGIC, REPLY, REQUEST, VERSION, WELCOME

__all__ = ["FrameWire", "Greeting"]

_MAX_REPLY = 1 << 30
_MAX_TEXT = 64 << 10
_OK = 200
_KINDS = {kind.decode(): number for number, kind in enumerate(KINDS)} | {"end": KINDS.index(b"stop")}


class Greeting:
    """The first bytes of a connection. A server that speaks only version 1 closes it."""

    def __init__(self, token: str) -> None:
        shown = token.encode()
        self.request = GREETING.pack(MAGIC, VERSION, 0, len(shown)) + shown
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


class FrameWire:
    """Requests and replies of one connection that was welcomed."""

    hint = ""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._number = 0

    def request(self, kind: str, session: str, body: bytes) -> bytes:
        """See `Wire`."""
        place = _KINDS.get(kind)
        if place is None:
            # Here kinds are numbers, so this one cannot even be sent.
            raise RefusedError(400, f"step_kind is {kind[:40]!r}; wanted start, tick or stop")
        self._buffer.clear()
        self._number += 1
        name = session.encode()
        head = REQUEST.pack(self._number, 0, len(body), len(name), place, 0, 0)
        return b"".join((head, name, body))

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
        if status != _OK:
            raise RefusedError(status, _text(body))
        return body


def _text(body: bytes | bytearray) -> str:
    return body.decode(errors="replace") or "refused without a reason"
