"""Gamecore over HTTP: ``POST /step``. The headers name session and step, the body is the codec's."""

from http import HTTPStatus

from penstock.serving.server.codecs import Codec
from penstock.serving.server.http import HttpReply, HttpRequest
from penstock.serving.server.refusal import Refusal
from penstock.serving.server.service import Service
from penstock.types import Array

__all__ = ["PATH", "GamecoreHttp"]

PATH = "/step"
PROTOCOL = "gamecore-http"


class _Asker:
    """Waits for the answer to one request."""

    __slots__ = ("_batched", "_codec", "_reply")

    def __init__(self, reply: HttpReply, codec: Codec, *, batched: bool) -> None:
        self._reply = reply
        self._codec = codec
        self._batched = batched

    def answered(self, action: Array, version: int) -> None:  # noqa: ARG002 - the protocol has no place for it
        body = self._codec.encode(action, batched=self._batched)
        self._reply.send(HTTPStatus.OK, self._codec.content_type, body)

    def refused(self, refusal: Refusal) -> None:
        self._reply.refused(refusal)


class GamecoreHttp:
    """Answers requests at `PATH`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def route(self, request: HttpRequest, reply: HttpReply) -> None:
        """Take one request.

        Raises:
            Refusal: it is not answered.
        """
        reply.protocol, reply.error_key = PROTOCOL, "detail"
        if request.method != "POST":
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{PATH} takes POST, not {request.method}")
        headers, service = request.headers, self._service
        token = headers.get(b"token")
        if not (service.tokens.accept(token) if token else service.tokens.accept_header(_authorization(request))):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        kind = headers.get(b"step-kind", b"")
        if not kind:
            fields, batched = service.codec.decode(request.body)
            service.endpoint.ask(fields, _Asker(reply, service.codec, batched=batched))
            return
        name = headers.get(b"session") or headers.get(b"game-id")
        if not name:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the header session is missing")
        self._step(kind, ("gamecore", name.decode("latin-1")), request.body, reply)

    def _step(self, kind: bytes, key: tuple[str, str], body: bytes, reply: HttpReply) -> None:
        endpoint, codec = self._service.endpoint, self._service.codec
        match kind:
            case b"tick":
                fields, batched = codec.decode(body)
                endpoint.tick(key, fields, _Asker(reply, codec, batched=batched))
            case b"start":
                endpoint.start(key)
                reply.send(HTTPStatus.OK, codec.content_type, codec.empty)
            case b"stop" | b"end":
                endpoint.stop(key, lambda: reply.send(HTTPStatus.OK, codec.content_type, codec.empty))
            case _:
                shown = kind.decode("latin-1")[:40]
                raise Refusal(HTTPStatus.BAD_REQUEST, f"step_kind is {shown!r}; wanted start, tick or stop")


def _authorization(request: HttpRequest) -> bytes:
    return request.headers.get(b"authorization", b"")
