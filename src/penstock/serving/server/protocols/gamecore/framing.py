"""Framing: how each version of Gamecore over TCP puts requests and replies into bytes. Asks nobody.

Every size is checked before memory is taken for it.
"""

from http import HTTPStatus
from struct import Struct
from typing import NamedTuple, Protocol, TypeAlias

from penstock.gamecore.frames import (
    GREETING,
    KINDS,
    MAGIC,
    MAX_KEY,
    MAX_SESSION,
    REPLY,
    REQUEST,
    VERSION,
    WELCOME,
    Encoding,
)
from penstock.serving.server.admission.refusal import Refusal

__all__ = [
    "Buffer",
    "FirstFraming",
    "Framing",
    "Greeting",
    "Request",
    "SecondFraming",
    "is_greeting",
    "read_greeting",
    "welcome",
]

Buffer: TypeAlias = bytes | bytearray
"""What of a connection was not taken yet."""

_FIRST_REQUEST = Struct("!6q")
_FIRST_REPLY = Struct("!3q")
_MAX_STEP_KIND = 16
_TICK = KINDS.index(b"tick")
_OK = int(HTTPStatus.OK)
_ENCODINGS = {int(encoding): encoding for encoding in Encoding}


class Request(NamedTuple):
    """One request, as it came."""

    number: int
    """Version 1: ``time``. Version 2: the request id. The reply echoes it."""
    session: bytes
    kind: bytes
    body: bytes
    """As its encoding has it."""
    token: bytes | None
    """``None``: the greeting of the connection held the token."""
    key: bytes = b""
    """Version 1 only."""
    encoding: Encoding = Encoding.PLAIN
    base: int = 0
    """Of a delta: the id of the request whose body it refers to."""


class Greeting(NamedTuple):
    """What a client says first in version 2."""

    key: bytes
    token: bytes
    end: int
    """Where the first request begins."""


class Framing(Protocol):
    """One version."""

    def read(self, buffer: Buffer, start: int) -> tuple[Request, int] | None:
        """The frame that begins at ``start``, and where it ends; ``None``: it is not whole.

        Raises:
            Refusal: the frame is bad. Nobody knows where the next one begins.
        """
        ...

    def answer(self, request: Request, body: bytes) -> bytes:
        """The reply with this body."""
        ...

    def refusal(self, request: Request, refusal: Refusal) -> bytes | None:
        """The reply that there is no answer; ``None``: this version has no status."""
        ...

    def last_words(self, buffer: Buffer, start: int, refusal: Refusal) -> bytes:
        """What is said about a bad frame that begins at ``start`` before the connection is closed."""
        ...


class FirstFraming:
    """Version 1: six big-endian signed 64-bit integers, then five payloads. It has no status."""

    def __init__(self, max_body: int) -> None:
        limits = (MAX_SESSION, _MAX_STEP_KIND, MAX_KEY, MAX_KEY, max_body)
        self._limits = tuple(zip(("session", "step_kind", "key", "token", "body"), limits, strict=True))

    def read(self, buffer: Buffer, start: int) -> tuple[Request, int] | None:
        """See `Framing`."""
        if len(buffer) - start < _FIRST_REQUEST.size:
            return None
        *sizes, time = _FIRST_REQUEST.unpack_from(buffer, start)
        for (name, limit), size in zip(self._limits, sizes, strict=True):
            if not 0 <= size <= limit:
                raise _bad(f"a frame whose {name} has {size} bytes; wanted 0 to {limit}")
        start += _FIRST_REQUEST.size
        if len(buffer) < start + sum(sizes):
            return None
        parts = []
        for size in sizes:
            parts.append(bytes(buffer[start : start + size]))
            start += size
        session, kind, key, token, body = parts
        return Request(time, session, kind, body, token, key), start

    def answer(self, request: Request, body: bytes) -> bytes:
        """See `Framing`."""
        return b"".join((_FIRST_REPLY.pack(len(request.session), len(body), request.number), request.session, body))

    def refusal(self, request: Request, refusal: Refusal) -> None:
        """``None``: a body would be taken for an answer."""

    def last_words(self, buffer: Buffer, start: int, refusal: Refusal) -> bytes:  # noqa: ARG002 - it has no status
        """Nothing."""
        return b""


class SecondFraming:
    """Version 2: frames with request ids, and replies with a status."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body

    def read(self, buffer: Buffer, start: int) -> tuple[Request, int] | None:
        """See `Framing`."""
        if len(buffer) - start < REQUEST.size:
            return None
        number, base, body, session, kind, encoding, zero = REQUEST.unpack_from(buffer, start)
        if body > self._max_body:
            text = f"a frame whose body has {body} bytes; the most is {self._max_body}"
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        if session > MAX_SESSION:
            raise _bad(f"a frame whose session has {session} bytes; the most is {MAX_SESSION}")
        known = _ENCODINGS.get(encoding)
        if known is None or kind >= len(KINDS) or zero or (encoding and kind != _TICK):
            raise _bad(f"a frame with step kind {kind}, encoding {encoding} and {zero} where 0 belongs")
        name_at = start + REQUEST.size
        body_at = name_at + session
        end = body_at + body
        if len(buffer) < end:
            return None
        name, content = bytes(buffer[name_at:body_at]), bytes(buffer[body_at:end])
        return Request(number, name, KINDS[kind], content, None, b"", known, base), end

    def answer(self, request: Request, body: bytes) -> bytes:
        """See `Framing`."""
        return REPLY.pack(request.number, len(body), _OK, 0, 0) + body

    def refusal(self, request: Request, refusal: Refusal) -> bytes:
        """See `Framing`."""
        return _refused(request.number, refusal)

    def last_words(self, buffer: Buffer, start: int, refusal: Refusal) -> bytes:
        """See `Framing`."""
        return _refused(REQUEST.unpack_from(buffer, start)[0], refusal)


def is_greeting(buffer: Buffer) -> bool:
    """Whether the first bytes of a connection are, or may become, a greeting of version 2."""
    return MAGIC.startswith(bytes(buffer[: len(MAGIC)]))


def read_greeting(buffer: Buffer) -> Greeting | None:
    """The greeting at the beginning; ``None``: it is not whole.

    Raises:
        Refusal: it is bad (400).
    """
    if len(buffer) < GREETING.size:
        return None
    _, version, key, token = GREETING.unpack_from(buffer)
    if version < VERSION:
        raise _bad(f"a greeting of version {version}; version 1 has no greeting, and this server speaks {VERSION}")
    if max(key, token) > MAX_KEY:
        raise _bad(f"a greeting whose key and token have {key} and {token} bytes; the most is {MAX_KEY}")
    start = GREETING.size + key
    if len(buffer) < start + token:
        return None
    return Greeting(bytes(buffer[GREETING.size : start]), bytes(buffer[start : start + token]), start + token)


def welcome(status: HTTPStatus, text: str) -> bytes:
    """The reply to a greeting."""
    said = text.encode()
    return WELCOME.pack(MAGIC, VERSION, status, len(said)) + said


def _refused(number: int, refusal: Refusal) -> bytes:
    said = refusal.text.encode()
    return REPLY.pack(number, len(said), refusal.status, refusal.retry_after or 0, 0) + said


def _bad(text: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, text)
