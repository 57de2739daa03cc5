"""Gamecore over TCP, versions 1 and 2 on one port: the first bytes of a connection say which of them the client speaks.

Version 1 has no status, so a request that cannot be answered closes its connection. In version 2 it gets a reply with a
status, and the connection goes on. A bad frame or a wrong token in a greeting closes the connection in both.
"""

import logging
from http import HTTPStatus
from time import perf_counter

from penstock.gamecore.frames import KINDS, Encoding
from penstock.serving.server.admission.refusal import FAILED, Refusal
from penstock.serving.server.connections.connection import Connection, Reply
from penstock.serving.server.connections.service import Service
from penstock.serving.server.protocols.gamecore.bases import Bases
from penstock.serving.server.protocols.gamecore.framing import (
    Buffer,
    FirstFraming,
    Framing,
    Request,
    SecondFraming,
    is_greeting,
    read_greeting,
    welcome,
)
from penstock.serving.server.sessions import SessionKey, gamecore_key

__all__ = ["GamecoreConnection"]

log = logging.getLogger("penstock.serve")

PROTOCOL = "gamecore-tcp"
_OK = 200
"""A plain number: a member of an enumeration takes longer to look up and to count."""
_KIND_NAMES = {kind: kind.decode() or "stateless" for kind in (*KINDS, b"end")}
"""Step kind -> its name in the access log."""
_POLICY_PREFIX = b"policy="
"""Begins a key that names a policy."""


class _Reply(Reply):
    """The reply to one frame.

    Attributes:
        stopped: the session that the request asks to end. Set once the request waits for that.
        unpacked: bytes of a body that came as a delta.
    """

    __slots__ = ("framing", "request", "stopped", "unpacked")

    connection: "GamecoreConnection"

    def __init__(self, connection: "GamecoreConnection", since: float, framing: Framing, request: Request) -> None:
        super().__init__(connection, since)
        self.framing = framing
        self.request = request
        self.stopped: SessionKey | None = None
        self.unpacked = 0

    def answer(self, content_type: str, body: bytes) -> None:  # noqa: ARG002 - the protocol has no place for it
        self._note(_OK, len(body))
        self.connection.unpacked -= self.unpacked
        self.put(self.framing.answer(self.request, body))

    def refused(self, refusal: Refusal) -> None:
        """Without a status, the connection ends with the replies before this one."""
        self._note(refusal.status, 0)
        self.connection.unpacked -= self.unpacked
        if self.stopped is not None and refusal.status == HTTPStatus.BAD_REQUEST:
            self.connection.still_lives(self.stopped)
        data = self.framing.refusal(self.request, refusal)
        if data is not None:
            self.put(data)
            return
        kind = self.request.kind.decode(errors="replace") or "stateless request"
        log.warning("connection of %s closed: %s: %s", self.connection.peer, kind, refusal.text)
        self.connection.is_deaf = True
        self.put(b"", closes=True)

    def _note(self, status: int, size: int) -> None:
        connection, kind = self.connection, self.request.kind
        what = _KIND_NAMES.get(kind) or kind.decode(errors="replace")
        connection.service.note(
            protocol=PROTOCOL, peer=connection.peer, what=what, status=status, since=self.since, size=size
        )


class GamecoreConnection(Connection):
    """One game client.

    Attributes:
        unpacked: bytes of bodies that came as deltas and wait for their answers.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._buffer: Buffer = b""
        self._is_taking = False
        self.unpacked = 0
        self._most_unpacked = service.limits.max_body
        self._bases = Bases(service.limits.max_body)
        self._framing: Framing | None = None
        """``None``: the client has not said yet which version it speaks."""
        self._key = b""
        """The key in the greeting. It holds for each request without a key of its own."""
        self._sessions: set[SessionKey] = set()
        """Sessions that live, have asked here, and were not stopped here."""

    def received(self, data: bytes) -> None:
        """Take the frames that are whole."""
        if not self._buffer:
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            # In place: a body that comes byte by byte must not be copied for each of them.
            self._buffer += data
        else:
            self._buffer = bytearray(self._buffer + data)
        self.may_read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or was dropped: tell those who answer which sessions lost their connection."""
        super().connection_lost(exc)
        for key in self._sessions:
            # The session may go on over another connection already. Then it is not parted.
            if self.service.asked_over.get(key) is self:
                del self.service.asked_over[key]
                self.service.steps.parted(key)

    def may_read_on(self) -> None:
        """Take the frames that wait, as far as there is room."""
        if self._is_taking:
            # Called from inside the loop below, by a request that was answered at once. The loop goes on by itself.
            return
        self._is_taking = True
        taken = 0
        while taken < len(self._buffer) and not self.is_deaf and self.has_room():
            end = self._next(taken)
            if end is None:
                break
            taken = end
        self._is_taking = False
        if self.is_deaf or taken == len(self._buffer):
            self._buffer = b""
        elif isinstance(self._buffer, bytearray):
            del self._buffer[:taken]
        else:
            self._buffer = self._buffer[taken:]
        if not self._buffer:
            self.partial_since = None
        elif taken or self.partial_since is None:
            self.partial_since = self.service.loop.time()

    def still_lives(self, key: SessionKey) -> None:
        """A session does not end: its stop was refused, after it has waited."""
        if key in self.service.asked_over:
            # It has gone on over another connection meanwhile.
            return
        if self._is_lost:
            self.service.steps.parted(key)
        else:
            self._asked(key)

    def has_room(self) -> bool:
        """See `Connection`. A few bytes may be deltas of large bodies, so their number alone is no limit."""
        return self.unpacked <= self._most_unpacked and super().has_room()

    def may_give_way(self) -> bool:
        """See `Connection`. A game that thinks for long between its ticks is not sent away."""
        return not self._sessions and super().may_give_way()

    def sweep(self, now: float) -> None:
        """Drop the connection if its client hangs. Frames that wait for room are no half request.

        Forgets the sessions that were idle for too long: the client says nothing of their end.
        """
        for key in [key for key in self._sessions if not self.service.steps.has(key)]:
            self._sessions.discard(key)
            if self.service.asked_over.get(key) is self:
                del self.service.asked_over[key]
        if self.partial_since is not None and not self.has_room():
            self.partial_since = now
        super().sweep(now)

    def _next(self, start: int) -> int | None:
        """Take what begins at ``start``, and return where it ends; ``None``: it is not whole, or bad."""
        if self._framing is None and not is_greeting(self._buffer):
            self._framing = FirstFraming(self.service.limits.max_body)
        framing = self._framing
        if framing is None:
            return self._greet()
        try:
            read = framing.read(self._buffer, start)
        except Refusal as refusal:
            self._end_with(refusal, framing.last_words(self._buffer, start, refusal))
            return None
        if read is None:
            return None
        request, end = read
        self._take(framing, request)
        return end

    def _greet(self) -> int | None:
        """Take a greeting of version 2, and return where it ends; ``None``: it is not whole, or refused."""
        try:
            greeting = read_greeting(self._buffer)
            if greeting is None:
                return None
            if not self.service.tokens.accept(greeting.token):
                raise _wrong_token()
        except Refusal as refusal:
            self._end_with(refusal, welcome(refusal.status, refusal.text))
            return None
        self._framing, self._key = SecondFraming(self.service.limits.max_body), greeting.key
        reply = Reply(self, 0.0)
        self.expect(reply)
        reply.put(welcome(HTTPStatus.OK, ""))
        return greeting.end

    def _take(self, framing: Framing, request: Request) -> None:
        reply = _Reply(self, perf_counter(), framing, request)
        self.expect(reply)
        try:
            self._ask(request, reply)
        except Refusal as refusal:
            reply.refused(refusal)
        except Exception:  # the client must not wait for a reply that never comes
            log.exception("a request of %s failed", self.peer)
            reply.refused(FAILED)

    def _ask(self, request: Request, reply: _Reply) -> None:
        service = self.service
        if request.token is not None and not service.tokens.accept(request.token):
            raise _wrong_token()
        steps = service.steps
        if not request.kind:
            steps.stateless(_policy(request.key or self._key), request.body, reply)
            return
        if not request.session:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the session is missing")
        key = gamecore_key(request.session)
        match request.kind:
            case b"tick":
                if request.encoding is Encoding.PLAIN:
                    steps.tick(key, request.body, reply)
                else:
                    self._tick(key, request, reply)
                # A client that has connected anew goes on with its session here.
                self._asked(key)
            case b"start":
                steps.start(key, _policy(request.key or self._key), request.body, reply)
                self._asked(key)
            case b"stop" | b"end":
                steps.stop(key, request.body, reply)
                self._bases.drop(request.session)
                self._sessions.discard(key)
                self.service.asked_over.pop(key, None)
                reply.stopped = key
            case _:
                raise Refusal(HTTPStatus.BAD_REQUEST, "step_kind is none of start, tick and stop")

    def _tick(self, key: SessionKey, request: Request, reply: _Reply) -> None:
        """Take a tick that is a key frame or a delta."""
        body = self._bases.body(request)
        if request.encoding is Encoding.DELTA:
            reply.unpacked = len(body)
            self.unpacked += reply.unpacked
        self.service.steps.tick(key, body, reply)
        self._bases.keep(request, body)

    def _asked(self, key: SessionKey) -> None:
        """A session has asked here."""
        self._sessions.add(key)
        self.service.asked_over[key] = self

    def _end_with(self, refusal: Refusal, data: bytes) -> None:
        """Close the connection after the replies that are due, and after ``data``."""
        log.warning("connection of %s closed: %s", self.peer, refusal.text)
        reply = Reply(self, 0.0)
        self.expect(reply)
        self.is_deaf = True
        reply.put(data, closes=True)


def _policy(key: bytes) -> str:
    """The name of the policy in a key, ``policy=NAME``; empty: the key names none."""
    return key[len(_POLICY_PREFIX) :].decode(errors="backslashreplace") if key.startswith(_POLICY_PREFIX) else ""


def _wrong_token() -> Refusal:
    return Refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
