"""Service: what all protocols of one server share."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from time import perf_counter

from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.admission.tokens import Tokens
from penstock.serving.server.connections.open import Connections
from penstock.serving.server.metrics.access_log import AccessLog
from penstock.serving.server.metrics.prometheus import Metrics
from penstock.serving.server.sessions import SessionKey
from penstock.serving.server.steps import Steps

__all__ = ["Service"]


@dataclass
class Service:
    """One server's parts and state.

    Attributes:
        steps: answers Gamecore requests.
        is_able: whether requests can be answered now.
        is_ending: the server has been told to end: it is no longer ready.
        connections: those that are open.
        asked_over: session of Gamecore -> the TCP connection over which it has asked last.
    """

    loop: asyncio.AbstractEventLoop
    steps: Steps
    is_able: Callable[[], bool]
    limits: Limits
    tokens: Tokens
    metrics: Metrics
    access_log: AccessLog | None = None
    is_ending: bool = False
    connections: Connections = field(default_factory=Connections)
    asked_over: dict[SessionKey, object] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether a request would be answered."""
        return not self.is_ending and self.is_able()

    def page(self, headers: Mapping[bytes, bytes]) -> tuple[bytes, str]:
        """What was counted, as Prometheus reads it, and the content type, for a request with these headers.

        Raises:
            Refusal: its token is missing or wrong (401).
        """
        if not self.tokens.accept_headers(headers):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        return self.metrics.page(headers.get(b"accept", b"").decode("latin-1"))

    def note(self, *, protocol: str, peer: str, what: str, status: int, since: float, size: int) -> None:
        """Count a request that was answered or refused, and write it into the access log.

        The arguments are those of `AccessLog.add`; ``since`` is the time of `time.perf_counter` when it was whole.
        """
        seconds = perf_counter() - since
        self.metrics.request(protocol, status, seconds)
        if self.access_log is not None:
            self.access_log.add(protocol=protocol, peer=peer, what=what, status=status, seconds=seconds, size=size)
