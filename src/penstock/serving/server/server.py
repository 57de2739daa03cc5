"""The server as a whole: opens its ports, runs until it is told to end, and ends without losing an accepted request."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clients.wire import bracketed
from penstock.errors import ConfigError
from penstock.registry import load
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.admission.tokens import Tokens
from penstock.serving.server.connections.connection import Connection
from penstock.serving.server.connections.http import HttpConnection, HttpReply, HttpRequest, Route
from penstock.serving.server.connections.listening import cannot_listen, check_free
from penstock.serving.server.connections.service import Service
from penstock.serving.server.endpoints.by_name import Endpoints
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.serving.server.metrics import prometheus
from penstock.serving.server.protocols import administration
from penstock.serving.server.protocols.administration import Administration
from penstock.serving.server.protocols.gamecore import http as gamecore_http
from penstock.serving.server.protocols.gamecore.http import GamecoreHttp
from penstock.serving.server.protocols.gamecore.tcp import GamecoreConnection
from penstock.serving.server.protocols.open_inference import http as inference_http
from penstock.serving.server.protocols.open_inference.http import InferenceHttp
from penstock.serving.server.protocols.open_inference.models import Models

if TYPE_CHECKING:
    from penstock.serving.server.protocols.open_inference.grpc.transport import InferenceGrpc

__all__ = ["Certificate", "Ports", "Server"]

log = logging.getLogger("penstock.serve")

_SWEEP_SECONDS = 0.25
_LAST_CALL_SECONDS = 0.25
"""After the end has begun, requests that were on their way are taken for so long."""
_LOOK_SECONDS = 0.01
_BACKLOG = 1024
_FREE = "or 0 for a free one"


@dataclass(frozen=True)
class Ports:
    """Where the server listens. A port of 0 stands for a free one; ``None``: not at all."""

    host: str
    http: int
    tcp: int | None
    grpc: int | None


@dataclass(frozen=True)
class Certificate:
    """Files for TLS, in PEM."""

    chain: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """For sockets of this process.

        Raises:
            ConfigError: the files hold no certificate with its private key, or the key is encrypted.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        for flag, path in (("--tls_cert", self.chain), ("--tls_key", self.key)):
            if not path.is_file():
                raise ConfigError(f"{flag} {path} is no file")

        def pass_phrase() -> str:
            # Otherwise OpenSSL would ask for it on the terminal.
            text = f"--tls_key {self.key} is encrypted; write one that is not: openssl pkey -in KEY -out PLAIN_KEY"
            raise ConfigError(text)

        named = f"--tls_cert {self.chain} and --tls_key {self.key}"
        try:
            context.load_cert_chain(self.chain, self.key, pass_phrase)
        except ssl.SSLError as error:
            why = "they do not belong together" if error.reason == "KEY_VALUES_MISMATCH" else "give two files in PEM"
            raise ConfigError(f"{named} are no certificate with its private key: {why}") from error
        except OSError as error:
            raise ConfigError(f"{named} cannot be read: {error.strerror or error}") from error
        return context


class Server:
    """Opens the ports and serves.

    Args:
        service: what the protocols share.
        endpoints: the served policies.
        ports: where to listen.
        certificate: for TLS; ``None``: no TLS.
        administrators: see `Administration`.
    """

    def __init__(
        self,
        service: Service,
        endpoints: Endpoints,
        ports: Ports,
        certificate: Certificate | None,
        administrators: Tokens | None,
    ) -> None:
        self._service = service
        self._endpoints = endpoints
        self._ports = ports
        self._certificate = certificate
        self._told = asyncio.Event()
        self._listeners: list[asyncio.Server] = []
        self._models = Models(endpoints)
        self._administration = Administration(endpoints, administrators)

    async def serve(self, say: Callable[[str], object]) -> None:
        """Open the ports, say where they are, and serve until the end.

        Raises:
            ResourceError: a port cannot be used.
            ConfigError: the certificate cannot be used.
        """
        loop, service = self._service.loop, self._service
        route = self._route()
        ports = self._ports
        try:
            context = self._certificate.context() if self._certificate is not None else None
            opened = {"http": await self._listen(lambda: HttpConnection(service, route), "--port", ports.http, context)}
            if ports.tcp is not None:
                opened["tcp"] = await self._listen(
                    lambda: GamecoreConnection(service), "--tcp_port", ports.tcp, context
                )
            grpc: InferenceGrpc | None = None
            if ports.grpc is not None:
                # gRPC itself would print lines of its own, and not say why the port cannot be used.
                check_free(ports.host, ports.grpc, f"give another --grpc_port, {_FREE}")
                # Workers are started by fork and exec, so no process goes on with the threads of gRPC. Else gRPC prints
                # a line of its own for each worker that is started again.
                os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
                # Imported on use: it takes 0.1 s, and most servers have no gRPC.
                grpc = load("penstock.serving.server.protocols.open_inference.grpc.transport:InferenceGrpc")(
                    service, self._models
                )
                opened["grpc"] = await grpc.start(ports.host, ports.grpc, self._pem())
            secure = "s" if context is not None else ""
            host = bracketed(ports.host)
            where = "  ".join(f"{name}{secure}://{host}:{port}" for name, port in opened.items())
            say(f"serving {'; '.join(map(_shown, self._endpoints))}, at {where}")
            sweeping = loop.create_task(self._sweep())
            await self._told.wait()
            await self._end(grpc)
            sweeping.cancel()
        finally:
            for listener in self._listeners:
                listener.close()
            await asyncio.gather(*(endpoint.close() for endpoint in self._endpoints))
            if service.access_log is not None:
                service.access_log.close()

    def end(self) -> None:
        """Begin the end. Further calls change nothing."""
        self._told.set()

    def _route(self) -> Route:
        service = self._service
        games = GamecoreHttp(service).route
        models = InferenceHttp(service, self._models).route
        administer = self._administration.route

        def route(request: HttpRequest, reply: HttpReply) -> None:
            path = request.path
            if path == gamecore_http.PATH:
                games(request, reply)
            elif path == inference_http.PATH or path.startswith(f"{inference_http.PATH}/"):
                models(request, reply)
            elif path.startswith(f"{administration.PATH}/"):
                administer(request, reply)
            elif path == prometheus.PATH:
                page, content_type = service.page(request.headers)
                reply.send(HTTPStatus.OK, content_type, page)
            else:
                raise Refusal(HTTPStatus.NOT_FOUND, f"there is nothing at {path[:120]}")

        return route

    async def _listen(
        self, protocol: Callable[[], Connection], flag: str, port: int, context: ssl.SSLContext | None
    ) -> int:
        host, loop = self._ports.host, self._service.loop
        # Until the handshake is over there is no connection that `_sweep` could see.
        handshake = None if context is None else self._service.limits.max_seconds
        try:
            listener = await loop.create_server(
                protocol, host, port, ssl=context, ssl_handshake_timeout=handshake, backlog=_BACKLOG
            )
        except OSError as error:
            raise cannot_listen(host, port, f"give another {flag}, {_FREE}", error) from None
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    def _pem(self) -> tuple[bytes, bytes] | None:
        if self._certificate is None:
            return None
        return self._certificate.key.read_bytes(), self._certificate.chain.read_bytes()

    async def _sweep(self) -> None:
        """Look after what hangs or is idle, again and again."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                self._look_after_all()
            except Exception:  # else no request would time out any more
                log.exception("what hangs or is idle could not be looked after; the next try is in a moment")

    def _look_after_all(self) -> None:
        service = self._service
        service.steps.sweep()
        now = service.loop.time()
        for connection in list(service.connections):
            connection.sweep(now)
        if service.access_log is not None:
            service.access_log.flush()

    async def _end(self, grpc: "InferenceGrpc | None") -> None:
        """End in three steps.

        1. No new connection is taken, the server is not ready, and replies tell HTTP clients to connect elsewhere.
        2. After a last call no request is taken.
        3. Accepted requests are answered, for at most ``grace_seconds``.
        """
        service, loop = self._service, self._service.loop
        service.is_ending = True
        for listener in self._listeners:
            listener.close()
        grace = service.limits.grace_seconds
        of_grpc = None if grpc is None else loop.create_task(grpc.end(grace))
        await asyncio.sleep(min(_LAST_CALL_SECONDS, grace))
        until = loop.time() + grace
        while not self._has_finished() and loop.time() < until:
            await asyncio.sleep(_LOOK_SECONDS)
        if of_grpc is not None:
            await of_grpc
        left = len(service.connections)
        if left:
            log.warning("%d connections were cut off after %g s", left, grace)

    def _has_finished(self) -> bool:
        """Let no connection take a request any more, and say whether all that were taken are answered.

        A connection may appear after the last call: its TLS handshake was on its way.
        """
        for connection in list(self._service.connections):
            connection.end()
        return not self._service.connections and self._endpoints.is_idle


def _shown(endpoint: Endpoint) -> str:
    """A served policy, for the line that says where the server listens."""
    through = "" if endpoint.agent is None else f", agent {endpoint.agent}"
    return f"{endpoint.name}, version {endpoint.stable.number}{through}"
