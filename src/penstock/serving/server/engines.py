"""What answers batches: the contract, and the engine that answers in the server's own process."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Protocol, TypeAlias

from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.batcher import Ask
from penstock.serving.server.policy.answering import Answer, Answerer, Questions, ServedPolicy
from penstock.serving.server.policy.source import Source

__all__ = ["Batch", "Engine", "OwnProcess", "Returns", "StartEngine"]

log = logging.getLogger("penstock.serve")


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


class OwnProcess:
    """Answers each batch at once, in the process that owns the sockets: the fastest way for a small policy.

    Args:
        policy: answers.
        max_batch: rows of the largest batch.
        returns: gets the answers.
    """

    restarts = 0

    def __init__(self, policy: ServedPolicy, max_batch: int, returns: Returns) -> None:
        answerer = Answerer(policy, max_batch)
        answerer.warm_up()
        self._answer: Callable[[Questions], Answer] = answerer.answer
        self._returns = returns

    def is_free(self) -> bool:
        """True: it answers at once."""
        return True

    def is_ready(self) -> bool:
        """True."""
        return True

    def parts(self, asks: list[Ask]) -> list[list[Ask]]:
        """All of them together."""
        return [asks]

    def take(self, batch: Batch) -> None:
        """Answer a batch now."""
        try:
            answer = self._answer(batch.questions)
        except Exception:  # a policy may hold a user's own module, which may raise anything
            log.exception("the policy failed for a batch of %d rows", len(batch.questions.first))
            self._returns.refused(batch, Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the policy failed"))
        else:
            self._returns.answered(batch, answer)

    def check(self, now: float) -> None:
        """Nothing of it hangs by itself."""

    async def close(self) -> None:
        """It has started nothing."""
