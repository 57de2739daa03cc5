"""Keeper: what its next life hands on, while the evaluator goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.memory.segment import Segment
from penstock.nodes.learner.keeper import Keeper
from penstock.nodes.learner.record import carry_over
from penstock.planning import plan
from penstock.topologies import on_policy
from penstock.wiring.edges import Wiring
from penstock.wiring.ports import NodePorts
from tests.nodes.test_takeover import Watched
from tests.planned import prepared

EVALUATOR = 50
UPDATE = 3


class Run:
    """A learner that has committed its first state, and then a record of an update, and has then died."""

    def __init__(self, update: int = UPDATE) -> None:
        program = on_policy.build(plan(prepared(eval_interval=1, num_workers=1), Path("run"), quiet=True))
        self._settings = program.node("learner").settings.keeper
        self._wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
        self._segment = Segment.create(self._wiring.nbytes, "test")
        self._wiring.attach(self._segment.bytes)
        self.requests = self._wiring.stream("evaluations")
        self._former = self._keeper(1)
        self._former.begin()
        new = self._former.next_record()
        carry_over(new, self._former.committed)
        new["update"][...] = update
        self._former.make_current(new)

    def ask(self) -> None:
        """The dead life had asked for an evaluation, which the evaluator has begun."""
        self._former._request_evaluation()
        index = self.requests.take(EVALUATOR)
        assert index is not None
        self._request = index

    def close(self) -> None:
        self._segment.close()

    def _keeper(self, life: int) -> Keeper:
        return Keeper(self._settings, NodePorts(self._wiring, "learner", "learner", life, tuple(range(1, life))))

    def judge(self) -> None:
        """The evaluator ends: it publishes its verdict, and then releases the request."""
        verdict = {"best_evaluation": np.array(7.0), "since_best": np.array(0)}
        self._wiring.board("evaluation").publish(verdict, UPDATE)
        self.requests.release(self._request, EVALUATOR)

    def take_over(self, judged_at: int = -1) -> int:
        """The next life. The evaluator ends before the read with this number. Returns the number of reads."""
        reads = 0

        def before() -> None:
            nonlocal reads
            reads += 1
            if reads == judged_at:
                self.judge()

        keeper: Any = self._keeper(2)
        committed = keeper.former()
        assert committed is not None
        keeper.take_over(committed)
        keeper._verdict = Watched(keeper._verdict, before)
        keeper._requests = Watched(keeper._requests, before)
        for _ in keeper.after_takeover():
            pass
        return reads


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    made.close()


@pytest.mark.parametrize("judged_at", [1, 2, 3])
def test_an_update_is_judged_once_whenever_its_evaluation_ends(run: Run, judged_at: int) -> None:
    run.ask()
    if run.take_over(judged_at) < judged_at:
        run.judge()
    assert run.requests.written() == {}


def test_an_evaluation_that_goes_on_is_not_asked_for_again(run: Run) -> None:
    run.ask()
    run.take_over()
    assert list(run.requests.written()) == [UPDATE]


def test_an_evaluation_that_the_dead_life_did_not_ask_for_is_asked_for(run: Run) -> None:
    run.take_over()
    assert list(run.requests.written()) == [UPDATE]


def test_the_update_with_which_a_run_begins_is_not_judged() -> None:
    """A commit may hold no update: one that drops a rollout, or that settles a gradient in the middle of a batch."""
    run = Run(update=0)
    run.take_over()
    assert run.requests.written() == {}
    run.close()
