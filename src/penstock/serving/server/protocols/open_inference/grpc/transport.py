"""The Open Inference Protocol over gRPC: health, metadata, inference, and a stream of inferences."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from time import perf_counter
from typing import Any

import grpc

from penstock.clients.wire import bracketed
from penstock.errors import ResourceError
from penstock.serving.server.admission.refusal import FAILED, Refusal
from penstock.serving.server.connections.service import Service
from penstock.serving.server.protocols.open_inference.grpc.calls import Calls
from penstock.serving.server.protocols.open_inference.grpc.messages import SERVICE, message
from penstock.serving.server.protocols.open_inference.models import Models

__all__ = ["InferenceGrpc"]

log = logging.getLogger("penstock.serve")

PROTOCOL = "inference-grpc"
_CODES: Mapping[HTTPStatus, grpc.StatusCode] = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.INTERNAL_SERVER_ERROR: grpc.StatusCode.INTERNAL,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}
_OPEN = frozenset({"ServerLive", "ServerReady"})
"""Calls that need no token."""


class InferenceGrpc:
    """The gRPC server. It runs in the event loop of all protocols."""

    def __init__(self, service: Service, models: Models) -> None:
        self._service = service
        self._calls = Calls(service, models)
        self._ending: asyncio.Future[None] = service.loop.create_future()
        """Done once the server ends."""
        limits = service.limits
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.max_body),
                ("grpc.max_concurrent_streams", limits.max_connections),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=limits.max_queue,
        )
        handlers = {name: self._unary(name, call) for name, call in self._calls.by_name.items()}
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream, response_serializer=message("ModelStreamInferResponse").SerializeToString
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def start(self, host: str, port: int, certificate: tuple[bytes, bytes] | None) -> int:
        """Listen, and return the port.

        Args:
            host: an address of this machine.
            port: 0 for a free one.
            certificate: private key and certificate chain; ``None``: no TLS.

        Raises:
            ResourceError: the port cannot be used.
        """
        address = f"{bracketed(host)}:{port}"
        try:
            if certificate is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
        except RuntimeError:
            raise ResourceError(
                f"cannot listen on {address}: the port is in use or not allowed; give another --grpc_port"
            ) from None
        await self._server.start()
        return int(bound)

    async def end(self, seconds: float) -> None:
        """Take no more calls and requests of streams, and finish those that were taken, within ``seconds``."""
        self._ending.set_result(None)
        await self._server.stop(seconds)

    def _unary(self, name: str, call: Callable[[bytes], Awaitable[Any]]) -> Any:  # noqa: ANN401 - grpc has no types
        # gRPC would answer bytes that are no message with a code and a traceback of its own, so `Calls` decodes them.
        async def handle(data: bytes, context: Any) -> Any:  # noqa: ANN401
            since = perf_counter()
            try:
                if name not in _OPEN:
                    self._check_token(context)
                reply = await call(data)
            except Refusal as refusal:
                self._note(context, name, refusal.status, since, 0)
                await context.abort(_CODES[refusal.status], refusal.text)
            except Exception:  # as of other protocols, the log says more than the client is told
                log.exception("a request of %s failed", context.peer())
                self._note(context, name, FAILED.status, since, 0)
                await context.abort(_CODES[FAILED.status], FAILED.text)
            self._note(context, name, HTTPStatus.OK, since, reply.ByteSize())
            return reply

        return grpc.unary_unary_rpc_method_handler(
            handle, response_serializer=message(f"{name}Response").SerializeToString
        )

    def _note(self, context: Any, name: str, status: HTTPStatus, since: float, size: int) -> None:  # noqa: ANN401
        self._service.note(protocol=PROTOCOL, peer=context.peer(), what=name, status=status, since=since, size=size)

    def _check_token(self, context: Any) -> None:  # noqa: ANN401
        metadata = context.invocation_metadata() or ()
        headers = {key.encode(): value.encode() if isinstance(value, str) else value for key, value in metadata}
        if not self._service.tokens.accept_headers(headers):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")

    async def _stream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        """Answer a client's requests one after the other."""
        since = perf_counter()
        try:
            self._check_token(context)
        except Refusal as refusal:
            self._note(context, "ModelStreamInfer", refusal.status, since, 0)
            await context.abort(_CODES[refusal.status], refusal.text)
        async for data in self._until_end(requests):
            since = perf_counter()
            reply = message("ModelStreamInferResponse")()
            status = HTTPStatus.OK
            try:
                await self._calls.infer(data, reply.infer_response)
            except Refusal as refusal:
                status = refusal.status
                reply.error_message = refusal.text
            except Exception:  # the stream's other requests go on
                log.exception("a request of %s failed", context.peer())
                status, reply.error_message = FAILED.status, FAILED.text
            self._note(context, "ModelStreamInfer", status, since, reply.ByteSize())
            yield reply

    async def _until_end(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The requests of a stream, until the client has sent all, or the server ends."""
        while not self._ending.done():
            coming = asyncio.ensure_future(anext(requests, None))
            try:
                await asyncio.wait({coming, self._ending}, return_when=asyncio.FIRST_COMPLETED)
                request = coming.result() if coming.done() else None
            finally:
                coming.cancel()
            if request is None:
                return
            yield request
