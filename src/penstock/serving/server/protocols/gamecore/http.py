"""Gamecore over HTTP: ``POST /step``. Headers name session, step and policy. What the body holds is not known here."""

from http import HTTPStatus

from penstock.gamecore.frames import MAX_SESSION
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.connections.http import HttpReply, HttpRequest
from penstock.serving.server.connections.service import Service
from penstock.serving.server.sessions import SessionKey, gamecore_key

__all__ = ["PATH", "GamecoreHttp"]

PATH = "/step"
PROTOCOL = "gamecore-http"


class GamecoreHttp:
    """Answers requests at `PATH`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def route(self, request: HttpRequest, reply: HttpReply) -> None:
        """Take one request.

        Raises:
            Refusal: it is not answered.
        """
        reply.protocol, reply.error_keys = PROTOCOL, ("detail",)
        if request.method != "POST":
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{PATH} takes POST, not {request.method}")
        headers, service = request.headers, self._service
        if not service.tokens.accept_headers(headers):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        kind = headers.get(b"step-kind", b"")
        if not kind:
            service.steps.stateless(request.header(b"policy"), request.body, reply)
            return
        name = headers.get(b"session") or headers.get(b"game-id")
        if not name:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the header session is missing")
        if len(name) > MAX_SESSION:
            raise Refusal(
                HTTPStatus.BAD_REQUEST, f"the header session has {len(name)} bytes; the most is {MAX_SESSION}"
            )
        self._step(kind, gamecore_key(name), request, reply)

    def _step(self, kind: bytes, key: SessionKey, request: HttpRequest, reply: HttpReply) -> None:
        steps, body = self._service.steps, request.body
        match kind:
            case b"tick":
                steps.tick(key, body, reply)
            case b"start":
                steps.start(key, request.header(b"policy"), body, reply)
            case b"stop" | b"end":
                steps.stop(key, body, reply)
            case _:
                shown = kind.decode("latin-1")[:40]
                raise Refusal(HTTPStatus.BAD_REQUEST, f"step_kind is {shown!r}; wanted start, tick or stop")
        # Over HTTP no connection belongs to a session: it does not part with the one over TCP that it had before.
        self._service.asked_over.pop(key, None)
