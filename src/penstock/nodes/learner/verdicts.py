"""Verdicts on a keeper's commits: it asks the evaluator for them, waits for them in lock step, and takes them.

Plays no episode, and commits nothing.
"""

import time
from collections.abc import Sequence

from penstock.config.schema import RunConfig
from penstock.nodes.contract import Ports
from penstock.nodes.learner.record import VERDICT
from penstock.nodes.learner.work import Work
from penstock.types import Arrays, ArraySpec

__all__ = ["Verdicts"]

VERDICT_LIMIT_S = 10.0
"""Seconds that an ending run waits for a verdict. A living evaluator gives up earlier, and a dead one never does."""


class Verdicts:
    """The keeper's end of the evaluations during the run, of a run that has them.

    Attributes:
        asked: the last update for which an evaluation was asked for; -1: none yet.
        awaited: whether the keeper waits for each verdict. True in lock step, if a verdict may stop the run. In lock
            step the same seed gives the same run. So the last update must not depend on how long evaluations take.
    """

    def __init__(self, run: RunConfig, published: Sequence[ArraySpec], ports: Ports) -> None:
        self.asked = -1
        self.awaited = run.early_stop > 0 and run.sync_mode == "blocking"
        self._interval = run.eval_interval
        self._published = published
        self._ports = ports
        self._requests = ports.stream_writer("evaluations")
        self._verdict = ports.board_reader("evaluation")
        self._stopping_since = 0.0

    def due(self, update: int) -> bool:
        """True if this update is to be judged."""
        return update % self._interval == 0

    def take_up(self, update: int) -> bool:
        """Take up what an earlier life has asked for. False if it has not asked for a verdict on this update."""
        # Race: the evaluator goes on meanwhile. It publishes a verdict before it releases the request. So:
        # 1. Read the requests. 2. Read the verdict: it is there if the request was already released.
        if update not in self._requests.written() and self._verdict.version() < update:
            return False
        self.asked = update
        return True

    def ask(self, committed: Arrays) -> Work:
        """Ask the evaluator to judge a commit."""
        if self.awaited:
            yield lambda: self._requests.free() > 0 or self._ports.stopping()
        self._request(committed)

    def wait(self, update: int) -> Work:
        """Wait for the verdict on this update.

        Ends without a verdict if the evaluator gives up, or once the run has been ending for ``VERDICT_LIMIT_S``.
        """
        with self._ports.span("wait for verdict"):
            # An evaluator that gives up while the run stops frees the slot without a verdict.
            yield lambda: self._verdict.version() >= update or self._requests.free() > 0 or self._out_of_time()

    def take(self, into: Arrays) -> None:
        """Copy the latest verdict into a record or a request, if there is one in this life."""
        self._verdict.read({spec.name: into[spec.name] for spec in VERDICT})

    def _out_of_time(self) -> bool:
        """True once the run has been ending for ``VERDICT_LIMIT_S``."""
        if not self._ports.stopping():
            return False
        now = time.monotonic()
        self._stopping_since = self._stopping_since or now
        return now - self._stopping_since > VERDICT_LIMIT_S

    def _request(self, committed: Arrays) -> None:
        """Send the committed parameters to the evaluator. While it is busy, requests are dropped and counted."""
        update = int(committed["update"])
        index = self._requests.claim(update)
        if index is None:
            self._ports.count("evaluations_dropped")
            return
        slot = self._requests.slot(index)
        for spec in self._published:
            slot[spec.name][...] = committed[spec.name]
        slot["update"][...] = update
        slot["steps"][...] = committed["steps"]
        slot["elapsed_s"][...] = committed["elapsed_s"]
        for spec in VERDICT:
            slot[spec.name][...] = committed[spec.name]
        # The only slot was free, so the verdict of the evaluation before this one is published.
        self.take(slot)
        self._requests.push(index)
        self.asked = update
