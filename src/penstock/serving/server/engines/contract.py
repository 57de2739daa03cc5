"""What answers batches, as a contract: batches, the engine that takes them, where they come back. Answers nothing."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.engines.batcher import Ask
from penstock.serving.server.policy.answering import Answer, Questions, ServedPolicy
from penstock.serving.server.policy.source import Source

__all__ = ["Batch", "Engine", "Returns", "StartEngine"]


class Batch:
    """Questions that left the queue together, at the time ``since`` of `time.perf_counter`."""

    __slots__ = ("asks", "questions", "since")

    def __init__(self, asks: list[Ask], questions: Questions, since: float) -> None:
        self.asks = asks
        self.questions = questions
        self.since = since


class Returns(Protocol):
    """What an engine calls once a batch is done. Each batch comes back by one of these calls, once."""

    def answered(self, batch: Batch, answer: Answer) -> None:
        """The answer of a batch. Its arrays are valid during the call."""
        ...

    def refused(self, batch: Batch, refusal: Refusal) -> None:
        """The policy failed."""
        ...

    def lost(self, batch: Batch) -> None:
        """Nobody knows whether the batch was answered. Nothing of an answer has been seen, so it may be asked again."""
        ...

    def free(self) -> None:
        """The engine takes a batch again."""
        ...


class Engine(Protocol):
    """Answers batches with one version of a policy."""

    restarts: int
    """How often a worker was started again."""

    def is_free(self) -> bool:
        """Whether it takes a batch now."""
        ...

    def is_ready(self) -> bool:
        """Whether anything of it is able to answer."""
        ...

    def parts(self, asks: list[Ask]) -> list[list[Ask]]:
        """Cut questions that leave the queue together into batches for `take`."""
        ...

    def take(self, batch: Batch) -> None:
        """Answer a batch, now or later."""
        ...

    def check(self, now: float) -> None:
        """Look after what may hang. Called several times a second."""
        ...

    async def close(self) -> None:
        """End what it has started."""
        ...


StartEngine: TypeAlias = Callable[[Source, ServedPolicy, Returns], Awaitable[Engine]]
"""Starts an engine: where its policy comes from, the same policy loaded, and what gets the answers. May raise
`penstock.errors.PenstockError`."""
