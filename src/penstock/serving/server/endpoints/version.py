"""Version: one version of a served policy: the questions that wait for it, and the engine that answers them.

It does not choose which sessions it answers: `Endpoint` does.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from time import perf_counter
from typing import Any

import numpy as np

from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import FAILED, Refusal
from penstock.serving.server.engines.batcher import Ask, Asker, Batcher
from penstock.serving.server.engines.contract import Batch, Engine
from penstock.serving.server.metrics.histogram import ROWS, SECONDS, Histogram
from penstock.serving.server.policy.answering import Answer, Questions, ServedPolicy
from penstock.serving.server.sessions import ClientSession, Sessions
from penstock.types import Array, Arrays

__all__ = ["Version"]

log = logging.getLogger("penstock.serve")

_TRIES = 3
"""How many workers may die with one request."""


class Version:
    """A version that is loaded.

    Args:
        number: the checkpoint's update.
        policy: loaded from it.
        table: the sessions of the endpoint. It holds their memory.
        limits: see `Limits`.
        loop: calls this object. All methods are called in its thread.
        failed: is told that this version could not answer, and why. It may give the version an heir.

    Attributes:
        engine: answers batches. Set it before the first question.
        sessions: how many sessions it answers.
        asking: how many questions of sessions wait or are being answered.
        is_on_trial: an answer with NaN or infinity counts as a failure.
        is_retired: it gets no new sessions, and ends once it has none.
        heir: answers what this version cannot answer any more; ``None``: nobody does.
        batch_rows: rows of each batch.
        batch_seconds: from leaving the queue to the answer.
        failures: how often it could not answer.
    """

    engine: Engine

    def __init__(
        self,
        number: int,
        policy: ServedPolicy,
        table: Sessions,
        limits: Limits,
        *,
        loop: asyncio.AbstractEventLoop,
        failed: Callable[["Version", str], None],
    ) -> None:
        self.number = number
        self.policy = policy
        self.sessions = 0
        self.asking = 0
        self.is_on_trial = False
        self.is_retired = False
        self.heir: Version | None = None
        self.batch_rows = Histogram(ROWS)
        self.batch_seconds = Histogram(SECONDS)
        self.failures = 0
        self._table = table
        self._has_memory = table.has_memory
        self._limits = limits
        self._loop = loop
        self._failed = failed
        self._under_way = 0
        self._batcher = Batcher(loop, limits, self._may_ask, self._is_free, self._leave)

    @property
    def queued(self) -> int:
        """Rows that wait for somebody to answer them."""
        return self._batcher.rows

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and nothing is being answered."""
        return not self._batcher.rows and not self._under_way

    def ask(self, fields: Arrays, count: int, asker: Asker) -> None:
        """Answer rows that belong to no session.

        Raises:
            Refusal: see `Batcher.add`.
        """
        self._batcher.add(Ask(fields, count, None, asker, self._loop.time()))

    def tick(self, session: ClientSession, fields: Arrays, asker: Asker) -> None:
        """Answer the next row of a session that asks for nothing else.

        Raises:
            Refusal: see `Batcher.add`.
        """
        # Counted before it waits: a batch leaves once no session is left that may ask.
        self.asking += 1
        try:
            self._batcher.add(Ask(fields, 1, session, asker, self._loop.time()))
        except Refusal:
            self.asking -= 1
            raise
        session.asking = True

    def parted(self) -> None:
        """One of its sessions has ended, or is answered by another version now: nobody waits for it any more."""
        self.sessions -= 1
        self._batcher.look_in_time()

    def adopt(self, session: ClientSession) -> None:
        """Answer this session from its next question on. It keeps its memory."""
        if not session.ended:
            session.version.parted()
            self.sessions += 1
        session.version = self

    def retire(self, heir: "Version") -> None:
        """Take no new sessions. What this version cannot answer any more goes to its heir."""
        self.is_retired = True
        self.heir = heir

    def give_up(self) -> None:
        """Let the heir answer what waits here."""
        if self.heir is not None:
            self.heir.take_over(self._batcher.take_all(), self)

    def take_over(self, asks: list[Ask], before: "Version") -> None:
        """Answer questions that another version cannot answer, and from now on the sessions that asked them."""
        for ask in asks:
            ask.tries = 0
            if ask.session is not None:
                before.asking -= 1
                self.asking += 1
                self.adopt(ask.session)
        if asks:
            self._batcher.again(asks)

    def sweep(self, now: float) -> None:
        """Refuse questions that have waited too long. Called several times a second."""
        late = self._batcher.drop_older(now - self._limits.max_seconds)
        if late:
            self._fail(late, Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "no answer in time; try later", retry_after=1))
        self.engine.check(now)

    # What an engine calls.

    def answered(self, batch: Batch, answer: Answer) -> None:
        """Give the answer of a batch to those who asked."""
        self._under_way -= 1
        if self.is_on_trial and not _is_finite(answer):
            text = "the policy answered NaN or infinity"
            self._fail(batch.asks, Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, text))
            return
        self.batch_seconds.add(perf_counter() - batch.since)
        # Askers may keep their part, and the engine uses its array again.
        action = answer.action.copy()
        if answer.carry:
            self._table.write(_rows(batch.asks), answer.carry)
        start = 0
        for ask in batch.asks:
            end = start + ask.count
            try:
                ask.asker.answered(action[start:end], self.number)
            except Exception:  # the other askers of the batch must not suffer from it
                log.exception("an answer could not be written")
                ask.asker.refused(FAILED)
            start = end
            if ask.session is not None:
                ask.session.first = False
                self._settle(ask.session)

    def refused(self, batch: Batch, refusal: Refusal) -> None:
        """The policy failed for this batch. The memory of its sessions is what it was."""
        self._under_way -= 1
        self._fail(batch.asks, refusal)

    def lost(self, batch: Batch) -> None:
        """Ask the batch again, unless it was lost several times: it may be what ends its workers."""
        self._under_way -= 1
        again: list[Ask] = []
        given_up: list[Ask] = []
        for ask in batch.asks:
            ask.tries += 1
            (again if ask.tries < _TRIES else given_up).append(ask)
        if given_up:
            text = f"{_TRIES} workers have died with this request"
            self._fail(given_up, Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after=1))
        if again and self.heir is not None:
            self.heir.take_over(again, self)
        elif again:
            self._batcher.again(again)

    def free(self) -> None:
        """The engine takes a batch again."""
        self._batcher.look()

    def _may_ask(self) -> int:
        # Below 0 where a session has gone over to another version while its question is answered here.
        return max(0, self.sessions - self.asking)

    def _is_free(self) -> bool:
        return self.engine.is_free()

    def _leave(self, asks: list[Ask]) -> None:
        for part in self.engine.parts(asks):
            self._take(part)

    def _take(self, asks: list[Ask]) -> None:
        """Let the engine answer one batch."""
        if len(asks) == 1:
            fields, count = asks[0].fields, asks[0].count
        else:
            fields = {name: np.concatenate([ask.fields[name] for ask in asks]) for name in asks[0].fields}
            count = sum(ask.count for ask in asks)
        if self._has_memory:
            first = np.array([ask.session is None or ask.session.first for ask in asks], np.bool_)
            questions = Questions(fields, first, self._table.read(_rows(asks)))
        else:
            questions = Questions(fields, np.zeros(count, np.bool_), {})
        self.batch_rows.add(count)
        self._under_way += 1
        self.engine.take(Batch(asks, questions, perf_counter()))

    def _fail(self, asks: list[Ask], refusal: Refusal) -> None:
        """These questions are not answered here: by the heir, or by nobody."""
        self.failures += 1
        self._failed(self, refusal.text)
        if self.heir is not None:
            self.heir.take_over(asks, self)
            return
        for ask in asks:
            try:
                ask.asker.refused(refusal)
            except Exception:  # as for an answer: the other askers must not suffer from it
                log.exception("a refusal could not be written")
            if ask.session is not None:
                self._settle(ask.session)

    def _settle(self, session: ClientSession) -> None:
        """A session's question is done: go on with what it asked next."""
        session.asking = False
        self.asking -= 1
        # While its client waited for the answer, it was not silent.
        self._table.use(session, self._loop.time())
        while session.waiting and not session.asking:
            session.waiting.popleft()()
        self._table.settle(session)


def _rows(asks: list[Ask]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The rows of the askers' sessions in the table of carries. Only for a policy with memory."""
    return np.array([ask.session.row for ask in asks if ask.session is not None], np.int64)


def _is_finite(answer: Answer) -> bool:
    return all(_all_finite(values) for values in (answer.action, *answer.carry.values()))


def _all_finite(values: Array) -> bool:
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())
