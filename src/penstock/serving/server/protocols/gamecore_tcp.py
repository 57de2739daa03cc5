"""Gamecore over TCP, version 1: sizes, then payloads. A bad frame closes the connection, because there is no status.

A request is six big-endian signed 64-bit integers and five payloads::

    session_size | step_kind_size | key_size | token_size | body_size | time
    session | step_kind | key | token | body

A reply is three of them and two payloads: ``session_size | body_size | time | session | body``.
"""

import logging
from http import HTTPStatus
from struct import Struct
from time import perf_counter

from penstock.serving.server.connection import Connection, Reply
from penstock.serving.server.refusal import Refusal
from penstock.serving.server.service import Service
from penstock.serving.server.sessions import SessionKey

__all__ = ["GamecoreConnection"]

log = logging.getLogger("penstock.serve")

PROTOCOL = "gamecore-tcp"
_REQUEST = Struct("!6q")
_REPLY = Struct("!3q")
_MAX_SESSION = 256
_MAX_STEP_KIND = 16
_MAX_KEY = 4096


class _Reply(Reply):
    """The reply to one frame."""

    __slots__ = ("kind", "session", "time")

    def __init__(self, connection: "GamecoreConnection", since: float, session: bytes, kind: bytes, time: int) -> None:
        super().__init__(connection, since)
        self.session = session
        self.kind = kind
        self.time = time

    def answer(self, content_type: str, body: bytes) -> None:  # noqa: ARG002 - the protocol has no place for it
        head = _REPLY.pack(len(self.session), len(body), self.time)
        self._note(HTTPStatus.OK, len(body))
        self.put(b"".join((head, self.session, body)))

    def refused(self, refusal: Refusal) -> None:
        """The connection ends with the replies before this one: a body would be taken for an answer."""
        self._note(refusal.status, 0)
        kind = self.kind.decode(errors="replace") or "stateless request"
        log.warning("connection of %s closed: %s: %s", self.connection.peer, kind, refusal.text)
        self.connection.is_deaf = True
        self.put(b"", closes=True)

    def _note(self, status: HTTPStatus, size: int) -> None:
        connection = self.connection
        kind = self.kind.decode(errors="replace") or "stateless"
        connection.service.note(
            protocol=PROTOCOL, peer=connection.peer, what=kind, status=status, since=self.since, size=size
        )


class GamecoreConnection(Connection):
    """One game client."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._buffer = bytearray()
        self._is_taking = False
        self._sessions: set[SessionKey] = set()
        """Sessions that have asked here, and were not stopped here."""
        limits = (_MAX_SESSION, _MAX_STEP_KIND, _MAX_KEY, _MAX_KEY, service.limits.max_body)
        self._limits = tuple(zip(("session", "step_kind", "key", "token", "body"), limits, strict=True))

    def received(self, data: bytes) -> None:
        """Take the frames that are whole."""
        if self._buffer:
            # In place: a body that comes byte by byte must not be copied for each of them.
            self._buffer += data
        else:
            self._buffer = bytearray(data)
        self.may_read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or was dropped: tell those who answer which sessions lost their connection."""
        super().connection_lost(exc)
        for key in self._sessions:
            self.service.steps.parted(key)

    def may_read_on(self) -> None:
        """Take the frames that wait, as far as there is room."""
        if self._is_taking:
            # A reply that was given at once: the loop below goes on by itself.
            return
        self._is_taking = True
        taken = 0
        while not self.is_deaf and self.has_room():
            end = self._end_of_frame(taken)
            if end is None:
                break
            self._take(taken)
            taken = end
        self._is_taking = False
        if self.is_deaf:
            self._buffer.clear()
        else:
            del self._buffer[:taken]
        if not self._buffer:
            self.partial_since = None
        elif taken or self.partial_since is None:
            self.partial_since = self.service.loop.time()

    def sweep(self, now: float) -> None:
        """Drop the connection if its client hangs. Frames that wait for room are no half request."""
        if self.partial_since is not None and not self.has_room():
            self.partial_since = now
        super().sweep(now)

    def _end_of_frame(self, start: int) -> int | None:
        """Where the frame ends that begins at ``start``; ``None``: it is not whole, or bad."""
        if len(self._buffer) - start < _REQUEST.size:
            return None
        sizes = _REQUEST.unpack_from(self._buffer, start)[:5]
        # Checked before any memory is taken for the payloads.
        for (name, limit), size in zip(self._limits, sizes, strict=True):
            if not 0 <= size <= limit:
                self._end_with(f"a frame whose {name} has {size} bytes; wanted 0 to {limit}")
                return None
        end: int = start + _REQUEST.size + sum(sizes)
        return end if len(self._buffer) >= end else None

    def _take(self, start: int) -> None:
        """Take the whole frame that begins at ``start``."""
        *sizes, time = _REQUEST.unpack_from(self._buffer, start)
        start += _REQUEST.size
        parts = []
        for size in sizes:
            parts.append(bytes(self._buffer[start : start + size]))
            start += size
        session, kind, _, token, body = parts
        reply = _Reply(self, perf_counter(), session, kind, time)
        self.expect(reply)
        try:
            self._ask(session, kind, token, body, reply)
        except Refusal as refusal:
            reply.refused(refusal)

    def _ask(self, session: bytes, kind: bytes, token: bytes, body: bytes, reply: _Reply) -> None:
        service = self.service
        if not service.tokens.accept(token):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        steps = service.steps
        if not kind:
            steps.stateless(body, reply)
            return
        if not session:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the session is missing")
        key = ("gamecore", session.decode(errors="backslashreplace"))
        match kind:
            case b"tick":
                steps.tick(key, body, reply)
                # A client that has connected anew goes on with its session here.
                self._sessions.add(key)
            case b"start":
                steps.start(key, body, reply)
                self._sessions.add(key)
            case b"stop" | b"end":
                steps.stop(key, body, reply)
                self._sessions.discard(key)
            case _:
                raise Refusal(HTTPStatus.BAD_REQUEST, "step_kind is none of start, tick and stop")

    def _end_with(self, why: str) -> None:
        """Close the connection after the replies that are due."""
        log.warning("connection of %s closed: %s", self.peer, why)
        reply = Reply(self, 0.0)
        self.expect(reply)
        self.is_deaf = True
        reply.put(b"", closes=True)
