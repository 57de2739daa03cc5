"""The engine that answers in the process that owns the sockets."""

import logging
from collections.abc import Callable
from http import HTTPStatus

from penstock.policies.batch_sizes import BatchSizes
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.engines.batcher import Ask
from penstock.serving.server.engines.contract import Batch, Returns
from penstock.serving.server.policy.answering import Answer, Answerer, Questions, ServedPolicy

__all__ = ["OwnProcess"]

log = logging.getLogger("penstock.serve")


class OwnProcess:
    """Answers each batch at once, in the process that owns the sockets: the fastest way for a small policy.

    Args:
        policy: answers.
        limits: of the server.
        returns: gets the answers.
    """

    restarts = 0

    def __init__(self, policy: ServedPolicy, limits: Limits, returns: Returns) -> None:
        answerer = Answerer(policy, limits.max_batch, BatchSizes(limits.pad_batches))
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
