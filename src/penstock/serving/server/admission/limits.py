"""Limits: how much one server takes on, and how far off answers may be. Each has a flag of ``penstock serve``."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from penstock.config.commands import ServeOptions
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.verification import QUANTIZED
from penstock.serving.verification import Limits as AnswerLimits

__all__ = ["Limits"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes in rows, bytes or counts; times in seconds."""

    max_batch: int = ServeOptions.max_batch
    """Rows that the policy answers in one call."""
    max_wait: float = ServeOptions.max_wait
    """How long a batch waits for sessions that have not asked. 0: it takes what has arrived."""
    pad_batches: tuple[int, ...] | Literal["none", "powers"] = ServeOptions.pad_batches
    """The sizes to which batches are padded; see `penstock.policies.batch_sizes.BatchSizes`."""
    max_body: int = ServeOptions.max_body
    """Bytes of one request's body."""
    max_sessions: int = ServeOptions.max_sessions
    max_queue: int = ServeOptions.max_queue
    """Rows that wait for an answer."""
    max_connections: int = ServeOptions.max_connections
    """Open connections of HTTP and TCP together. Once so many are open, the most silent one gives way to a new one."""
    max_seconds: float = ServeOptions.max_seconds
    """A request that is not answered after this time is refused. A request that has not arrived whole is dropped."""
    idle_seconds: float = ServeOptions.idle_seconds
    """A session or connection without a request for so long ends."""
    grace_seconds: float = ServeOptions.grace_seconds
    """After SIGTERM, accepted requests are answered for at most so long."""
    quantized: AnswerLimits = QUANTIZED
    """What a bundle in int8 or fp16 must keep to before it answers anybody."""

    def check_rows(self, count: int) -> None:
        """Check that one request may hold ``count`` rows.

        Raises:
            Refusal: they are more than a batch (400).
        """
        if count > self.max_batch:
            text = f"the request holds {count} rows; this server takes up to {self.max_batch} (--max_batch)"
            raise Refusal(HTTPStatus.BAD_REQUEST, text)
