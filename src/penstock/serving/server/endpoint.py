"""Endpoint: one policy under one name. Protocols call it; it keeps sessions in order and lets batches be answered."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import numpy as np

from penstock.errors import BadDataError
from penstock.serving.server.answering import Answer, Questions, ServedPolicy
from penstock.serving.server.batcher import Ask, Asker, Batcher
from penstock.serving.server.engines import Batch, Engine
from penstock.serving.server.limits import Limits
from penstock.serving.server.metrics import Metrics
from penstock.serving.server.refusal import Refusal
from penstock.serving.server.sessions import ClientSession, SessionKey, Sessions
from penstock.serving.server.source import Source
from penstock.types import Arrays

__all__ = ["Endpoint"]

log = logging.getLogger("penstock.serve")

_TRIES = 3
"""How many workers may die with one request."""
_WAITING = 64
"""Requests of one session that wait behind its present one."""


class Endpoint:
    """A served policy.

    Args:
        name: clients ask for it by this name.
        policy: gives spaces, and checks observations.
        version: of the policy.
        limits: see `Limits`.
        metrics: counts batches and what became of sessions.
        loop: calls this object. All methods are called in its thread.

    Attributes:
        version: of the policy that answers new questions.
        engine: answers batches. Set it before the first question.
    """

    engine: Engine

    def __init__(
        self,
        name: str,
        policy: ServedPolicy,
        version: int,
        limits: Limits,
        *,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self.policy = policy
        self.version = version
        carry = policy.session(1).carry
        self.has_memory = bool(carry)
        self.sessions = Sessions(carry, limits.max_sessions, limits.idle_seconds)
        self._limits = limits
        self._metrics = metrics
        self._loop = loop
        self._asking = 0
        self._batcher = Batcher(loop, limits, lambda: len(self.sessions) - self._asking, self._is_free, self._leave)
        self._under_way = 0

    @property
    def queued(self) -> int:
        """Rows that wait for somebody to answer them."""
        return self._batcher.rows

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and nothing is being answered."""
        return not self._batcher.rows and not self._under_way

    def check(self, obs: Any, action_mask: Any = None) -> tuple[Arrays, bool]:  # noqa: ANN401 - a client's
        """Checked observation fields ``[n, ...]``, and whether they are a batch.

        Raises:
            Refusal: the observation does not fit (400).
        """
        try:
            fields, batched = self.policy.fields(obs, action_mask)
        except BadDataError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        if batched and not len(next(iter(fields.values()))):
            raise Refusal(HTTPStatus.BAD_REQUEST, "the request holds no rows")
        return fields, batched

    def ask(self, fields: Arrays, asker: Asker) -> None:
        """Answer rows that belong to no session.

        Raises:
            Refusal: the policy has a memory (400); the queue is full (503); there are too many rows (400).
        """
        if self.has_memory:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"policy {self.name} has a memory: it answers in sessions only")
        self._batcher.add(Ask(fields, len(next(iter(fields.values()))), None, asker, self._loop.time()))

    def start(self, key: SessionKey) -> None:
        """Begin a session.

        Raises:
            Refusal: see `Sessions.start`.
        """
        self.sessions.start(key, self._loop.time())

    def tick(self, key: SessionKey, fields: Arrays, asker: Asker) -> None:
        """Answer the next row of a session, after those that it asked before.

        Raises:
            Refusal: there is no such session (404), or it has asked for too much at once (429); see also `ask`.
        """
        session = self.sessions.find(key, self._loop.time())
        if len(next(iter(fields.values()))) != 1:
            raise Refusal(HTTPStatus.BAD_REQUEST, "a session asks for one row at a time")
        if not session.asking:
            self._add(session, fields, asker)
        elif len(session.waiting) < _WAITING:
            session.waiting.append(lambda: self._add_late(session, fields, asker))
        else:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS, f"{len(session.waiting)} requests of this session wait already", 1
            )

    def stop(self, key: SessionKey, done: Callable[[], None]) -> None:
        """End a session, and call ``done`` once all that it asked before is answered.

        Raises:
            Refusal: there is no such session (404).
        """
        session = self.sessions.find(key, self._loop.time())
        if session.asking:
            session.waiting.append(done)
            self.sessions.end(session)
        else:
            self.sessions.end(session)
            done()

    async def switch(self, source: Source, policy: ServedPolicy) -> None:
        """Go on with another version of the policy. Sessions keep their memory, and no question is lost."""
        await self.engine.switch(source, policy)
        self.policy, self.version = policy, source.version

    def sweep(self) -> None:
        """End idle sessions and refuse questions that have waited too long. Called several times a second."""
        now = self._loop.time()
        self._metrics.expired += self.sessions.expire(now)
        for ask in self._batcher.drop_older(now - self._limits.max_seconds):
            self._refuse(ask, Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "no answer in time; try later", retry_after=1))
        self.engine.check(now)

    # What an engine calls.

    def answered(self, batch: Batch, answer: Answer, version: int) -> None:
        """Give the answer of a batch to those who asked."""
        self._under_way -= 1
        # Askers may keep their part, and the engine uses its array again.
        action = answer.action.copy()
        if answer.carry:
            self.sessions.write(_rows(batch.asks), answer.carry)
        start = 0
        for ask in batch.asks:
            end = start + ask.count
            try:
                ask.asker.answered(action[start:end], version)
            except Exception:  # the other askers of the batch must not suffer from it
                log.exception("an answer could not be written")
            start = end
            if ask.session is not None:
                ask.session.first = False
                self._settle(ask.session)

    def refused(self, batch: Batch, refusal: Refusal) -> None:
        """Tell those who asked that there is no answer. The memory of their sessions is what it was."""
        self._under_way -= 1
        for ask in batch.asks:
            self._refuse(ask, refusal)

    def lost(self, batch: Batch) -> None:
        """Ask the batch again, unless it was lost several times: it may be what ends its workers."""
        self._under_way -= 1
        again = []
        for ask in batch.asks:
            ask.tries += 1
            if ask.tries < _TRIES:
                again.append(ask)
            else:
                text = f"{_TRIES} workers have died with this request"
                self._refuse(ask, Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after=1))
        if again:
            self._batcher.again(again)

    def free(self) -> None:
        """The engine takes a batch again."""
        self._batcher.look()

    def _is_free(self) -> bool:
        return self.engine.is_free()

    def _add(self, session: ClientSession, fields: Arrays, asker: Asker) -> None:
        self._batcher.add(Ask(fields, 1, session, asker, self._loop.time()))
        session.asking = True
        self._asking += 1

    def _add_late(self, session: ClientSession, fields: Arrays, asker: Asker) -> None:
        try:
            self._add(session, fields, asker)
        except Refusal as refusal:
            asker.refused(refusal)

    def _refuse(self, ask: Ask, refusal: Refusal) -> None:
        ask.asker.refused(refusal)
        if ask.session is not None:
            self._settle(ask.session)

    def _settle(self, session: ClientSession) -> None:
        """A session's question is done: go on with what it asked next."""
        session.asking = False
        self._asking -= 1
        while session.waiting and not session.asking:
            session.waiting.popleft()()
        self.sessions.settle(session)

    def _leave(self, asks: list[Ask]) -> None:
        names = asks[0].fields
        fields = {name: np.concatenate([ask.fields[name] for ask in asks]) for name in names}
        count = sum(ask.count for ask in asks)
        if self.has_memory:
            first = np.array([ask.session is None or ask.session.first for ask in asks], np.bool_)
            questions = Questions(fields, first, self.sessions.read(_rows(asks)))
        else:
            questions = Questions(fields, np.zeros(count, np.bool_), {})
        self._metrics.batch(count)
        self._under_way += 1
        self.engine.take(Batch(asks, questions))


def _rows(asks: list[Ask]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The rows of the askers' sessions in the table of carries. Only for a policy with memory."""
    return np.array([ask.session.row for ask in asks if ask.session is not None], np.int64)
