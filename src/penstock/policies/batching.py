"""When the questions to a policy leave as one batch, and which of them. Answers none of them and reads no clock."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.types import Question

__all__ = ["BatchRule", "QuestionQueue"]


@dataclass(frozen=True)
class BatchRule:
    """The rule by which questions leave as one batch.

    The batch leaves when one of these holds:

    - ``max_batch`` rows wait;
    - no asker is outstanding: whoever may ask soon has asked;
    - the oldest question has waited ``max_wait`` seconds. With 0, a batch takes all that has arrived.
    """

    max_batch: int | None
    """``None``: any number of rows."""
    max_wait: float

    def leaves(self, rows: int, waited: float, outstanding: int) -> bool:
        """True if the batch leaves now.

        Args:
            rows: number of rows that wait, at least 1.
            waited: seconds that the oldest question has waited.
            outstanding: how many others may ask soon.
        """
        full = self.max_batch is not None and rows >= self.max_batch
        return full or outstanding == 0 or waited >= self.max_wait


class _Waiting(NamedTuple):
    """A question, and when it was taken."""

    question: Question
    since: float


class QuestionQueue:
    """The questions that a policy node has taken and not answered, the oldest first.

    An asker is *outstanding* from its answer to its next question, if it has said that it asks again in its rollout.
    Between two rollouts an asker may wait for a slot or for a newer policy, so no batch waits for it.

    No batch waits twice for the same question: once a batch has waited ``max_wait`` in vain for an asker, that asker is
    outstanding again only after it has asked. So a slow environment delays the others once in each of its steps, and a
    dead one once.

    Times are seconds of one clock, such as ``time.monotonic``.

    Args:
        rule: says when a batch leaves.
        lanes: rows of a question about a row, or about its values.
    """

    def __init__(self, rule: BatchRule, lanes: int) -> None:
        self._rule = rule
        self._lanes = lanes
        self._waiting: deque[_Waiting] = deque()
        self._rows = 0
        self._outstanding: set[int] = set()

    def add(self, questions: Sequence[Question], now: float) -> None:
        """Let questions wait."""
        for question in questions:
            self._outstanding.discard(question.asker)
            self._waiting.append(_Waiting(question, now))
            self._rows += self._count(question)

    def leaves(self, now: float) -> bool:
        """True if a batch leaves now."""
        return bool(self._waiting) and self._rule.leaves(self._rows, self._waited(now), len(self._outstanding))

    def due(self) -> float:
        """When a batch leaves at the latest; infinity while no question waits."""
        return self._waiting[0].since + self._rule.max_wait if self._waiting else math.inf

    def take(self, now: float) -> list[Question]:
        """The batch that leaves now: the oldest questions, at most ``max_batch`` rows. One question is never split."""
        if self._waited(now) >= self._rule.max_wait:
            self._outstanding.clear()
        batch: list[Question] = []
        rows, most = 0, math.inf if self._rule.max_batch is None else self._rule.max_batch
        while self._waiting and (not batch or rows + self._count(self._waiting[0].question) <= most):
            question = self._waiting.popleft().question
            batch.append(question)
            rows += self._count(question)
            if question.again:
                self._outstanding.add(question.asker)
        self._rows -= rows
        return batch

    def _waited(self, now: float) -> float:
        return now - self._waiting[0].since

    def _count(self, question: Question) -> int:
        return question.finals or self._lanes
