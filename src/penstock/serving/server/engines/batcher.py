"""Batcher: decides when the questions that wait leave as one batch. Does not answer them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Protocol

from penstock.policies.batching import BatchRule
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.sessions import ClientSession
from penstock.types import Array, Arrays

__all__ = ["Ask", "Asker", "Batcher"]


class Asker(Protocol):
    """What a protocol gives along with a question. One of its methods is called, once."""

    def answered(self, action: Array, version: int) -> None:
        """The actions of its rows ``[n, ...]``, in the environment's own units, and the policy's version."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """There is no answer."""
        ...


class Ask:
    """A question that waits: ``count`` rows of one asker."""

    __slots__ = ("asker", "count", "fields", "session", "since", "tries")

    def __init__(self, fields: Arrays, count: int, session: ClientSession | None, asker: Asker, since: float) -> None:
        self.fields = fields
        self.count = count
        self.session = session
        self.asker = asker
        self.since = since
        self.tries = 0


class Batcher:
    """Questions in the order in which they came.

    A batch leaves when somebody is free to answer it, and the `BatchRule` says so. A session that waits for an answer
    will not ask now.

    Args:
        loop: calls this object.
        limits: the sizes and times.
        may_ask: how many sessions there are that wait for no answer.
        free: whether a batch would be answered now.
        leave: takes a batch away.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        may_ask: Callable[[], int],
        free: Callable[[], bool],
        leave: Callable[[list[Ask]], None],
    ) -> None:
        self.rows = 0
        self._loop = loop
        self._limits = limits
        self._rule = BatchRule(limits.max_batch, limits.max_wait)
        self._may_ask = may_ask
        self._free = free
        self._leave = leave
        self._queue: deque[Ask] = deque()
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None

    def add(self, ask: Ask) -> None:
        """Let a question wait.

        Raises:
            Refusal: the queue is full (503), or the question alone is more than a batch (400).
        """
        self._limits.check_rows(ask.count)
        if self.rows + ask.count > self._limits.max_queue:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{self.rows} rows wait already; try later", retry_after=1)
        self._queue.append(ask)
        self.rows += ask.count
        self.look_in_time()

    def again(self, asks: Sequence[Ask]) -> None:
        """Let questions wait once more, before all others: whoever had them has died."""
        self._queue.extendleft(reversed(asks))
        self.rows += sum(ask.count for ask in asks)
        self.look_in_time()

    def take_all(self) -> list[Ask]:
        """Take all questions away that wait."""
        asks = list(self._queue)
        self._queue.clear()
        self.rows = 0
        return asks

    def look(self) -> None:
        """Let batches leave, as far as somebody is free. Called when somebody may be."""
        self._soon = None
        if self._queue and self._is_due() and self._free():
            self._leave(self._take())
        self.look_in_time()

    def look_in_time(self) -> None:
        """Look once a batch is due. Called when that may have changed."""
        if self._soon is not None or not self._queue:
            return
        if self._is_due():
            if self._free():
                # The event loop reads what else has arrived before it calls this. So those questions join the batch.
                self._soon = self._loop.call_soon(self.look)
        elif self._later is None:
            due = self._queue[0].since + self._limits.max_wait
            self._later = self._loop.call_later(max(0.0, due - self._loop.time()), self._waited)

    def drop_older(self, than: float) -> list[Ask]:
        """Take the questions away that have waited since before ``than``."""
        dropped = []
        while self._queue and self._queue[0].since < than:
            dropped.append(self._queue.popleft())
        self.rows -= sum(ask.count for ask in dropped)
        return dropped

    def _waited(self) -> None:
        self._later = None
        self.look()

    def _is_due(self) -> bool:
        return self._rule.leaves(self.rows, self._loop.time() - self._queue[0].since, self._may_ask())

    def _take(self) -> list[Ask]:
        """The oldest questions, at most ``max_batch`` rows."""
        batch: list[Ask] = []
        rows = 0
        while self._queue and rows + self._queue[0].count <= self._limits.max_batch:
            ask = self._queue.popleft()
            batch.append(ask)
            rows += ask.count
        self.rows -= rows
        return batch
