"""What a keeper does after a death, while the evaluator goes on."""

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.memory.board import Board
from penstock.memory.record import Record
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.metrics.report import report_sequence
from penstock.nodes.learner import verdicts
from penstock.nodes.learner.keeper import Keeper, KeeperSettings
from penstock.nodes.learner.record import VERDICT
from penstock.nodes.learner.work import Work
from penstock.types import Array, ArraySpec

KEEPER, NEXT, EVALUATOR = 1, 2, 9
UPDATE = 8
COUNTS = (*(ArraySpec(name, (), "int64") for name in ("update", "steps")), ArraySpec("elapsed_s", (), "float64"))
RECORD = (*COUNTS, *VERDICT, ArraySpec("episodes", (), "int64"))


class Watched:
    """Calls ``before`` each time before something is read."""

    def __init__(self, watched: Any, before: Any) -> None:
        self._watched = watched
        self._before = before

    def __getattr__(self, name: str) -> Any:
        self._before()
        return getattr(self._watched, name)


class Requests:
    """The keeper's end of a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.written, self.slot, self.free = stream.written, stream.slot, stream.free

    def claim(self, sequence: int) -> int | None:
        return self._stream.claim(NEXT, sequence)

    def push(self, index: int) -> None:
        self._stream.push(index, NEXT)


class Shared:
    """A keeper has committed an update, has asked for its evaluation, and then died. The evaluator is playing."""

    def __init__(self, *, waits: bool = False) -> None:
        self.waits = waits
        self.stopping = False
        self.requests = Stream(
            Segment.create(Stream.required((*COUNTS, *VERDICT), 1), "test").bytes, (*COUNTS, *VERDICT), 1
        )
        self.verdict = Board(Segment.create(Board.required(VERDICT), "test").bytes, VERDICT)
        self.record = Record(Segment.create(Record.required(RECORD), "test").bytes, RECORD)
        first = {spec.name: np.zeros((), spec.dtype) for spec in RECORD}
        self.record.write(first, 0)
        self.record.write({**first, "update": np.array(UPDATE)}, 1)
        index = self.requests.claim(KEEPER, UPDATE)
        assert index is not None
        self.requests.push(index, KEEPER)
        self.playing = self.requests.take(EVALUATOR)
        self.reads = 0

    def judge(self) -> None:
        """Publish the verdict, and give the request back."""
        assert self.playing is not None
        self.verdict.publish({"best_evaluation": np.array(1.0), "since_best": np.array(0)}, UPDATE)
        self.requests.release(self.playing, EVALUATOR)

    def take_over(self, judged_at: int = -1, resumed_update: int = 0) -> None:
        """Begin the keeper's next life. The evaluation ends before the read with this number."""
        for wake in self.next_life(judged_at, resumed_update):
            assert wake is None or wake()

    def next_life(self, judged_at: int = -1, resumed_update: int = 0) -> Work:
        """What the next life does first, as `take_over`."""

        def before() -> None:
            if self.reads == judged_at:
                self.judge()
            self.reads += 1

        ends = {"evaluations": Watched(Requests(self.requests), before), "evaluation": Watched(self.verdict, before)}
        reported = SimpleNamespace(written=lambda: {report_sequence(UPDATE): 0})
        ports: Any = SimpleNamespace(
            former=(KEEPER,),
            board_writer=lambda _: SimpleNamespace(publish=_nothing),
            board_reader=ends.get,
            record=lambda _: self.record,
            stream_writer=lambda edge: ends.get(edge, reported),
            span=lambda _: nullcontext(),
            stopping=lambda: self.stopping,
            count=_nothing,
        )
        run: Any = SimpleNamespace(
            eval_interval=UPDATE,
            early_stop=2 if self.waits else 0,
            sync_mode="blocking" if self.waits else "non_blocking",
            save_interval=UPDATE + 1,
            episode_metrics=None,
            timesteps=0,  # The run is done, so no checkpoint is due.
        )
        spec: Any = SimpleNamespace(published=lambda: ())
        spaces: Any = None
        keeper = Keeper(KeeperSettings("", None, spec, spaces, run, (), None, resumed_update), ports)
        committed = keeper.former()
        assert committed is not None
        keeper.take_over(committed)
        return keeper.after_takeover()


def _nothing(*_: Mapping[str, Array] | int | str) -> None:
    """Do nothing."""


def reads() -> int:
    shared = Shared()
    shared.take_over()
    return shared.reads


@pytest.mark.parametrize("judged_at", range(-1, reads()))
def test_an_evaluation_that_ends_meanwhile_is_not_asked_for_again(judged_at: int) -> None:
    shared = Shared()
    shared.take_over(judged_at)
    assert len(shared.requests.written()) == (judged_at < 0)


def test_a_verdict_is_committed_once_however_often_the_keeper_begins_anew() -> None:
    """A commit counts as progress. So a keeper whose every life fails would be started for ever."""
    shared = Shared(waits=True)
    shared.judge()
    shared.take_over()
    committed = shared.record.current()
    assert committed is not None
    assert committed.number == 2
    assert committed.arrays["best_evaluation"] == 1.0
    shared.take_over()
    assert shared.record.number() == 2


def test_the_update_that_a_run_was_resumed_at_is_not_judged_again() -> None:
    """The run before has counted its evaluation. Since then, single gradients were committed and no update."""
    shared = Shared()
    assert shared.playing is not None
    shared.requests.release(shared.playing, EVALUATOR)
    shared.take_over(resumed_update=UPDATE)
    assert not shared.requests.written()


def test_a_run_that_ends_does_not_wait_for_the_verdict_of_an_evaluator_that_is_gone(monkeypatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: clock[0])
    shared = Shared(waits=True)
    life = shared.next_life()
    wake = next(life)
    assert wake is not None
    shared.requests.recover(EVALUATOR)
    assert not wake()
    shared.stopping = True
    for seconds, given_up in ((50.0, False), (59.0, False), (61.0, True)):
        clock[0] = seconds
        assert wake() == given_up
    assert list(life) == []
    assert shared.record.number() == 1


class Asked:
    """A keeper that is asked for a checkpoint, and how many slots of its streams are free.

    Args:
        save_interval: of the run.
        wanted: a deputy asks for a checkpoint.
        judged: the run evaluates each update.
    """

    def __init__(self, save_interval: int, *, wanted: bool = True, judged: bool = False) -> None:
        self.free, self.passing = 0, list[bool]()
        slot = {name: np.array(0.0) for name in ("update", "steps", "elapsed_s", *(spec.name for spec in VERDICT))}
        stream = SimpleNamespace(
            free=lambda: self.free,
            claim=lambda _: 0 if self.free else None,
            slot=lambda _: slot,
            push=_nothing,
        )
        ports: Any = SimpleNamespace(
            former=(),
            board_writer=lambda _: None,
            board_reader=lambda _: SimpleNamespace(read=_nothing),
            record=lambda _: None,
            stream_writer=lambda _: stream,
            span=lambda _: nullcontext(),
            checkpoints_wanted=lambda: int(wanted),
            count=_nothing,
        )
        run: Any = SimpleNamespace(
            eval_interval=int(judged),
            early_stop=0,
            sync_mode="blocking",
            save_interval=save_interval,
            episode_metrics=None,
        )
        spec: Any = SimpleNamespace(published=lambda: ())
        spaces: Any = None
        self.keeper = Keeper(KeeperSettings("", None, spec, spaces, run, (), None, 0), ports)
        self.keeper.committed = {**slot, "update": np.array(UPDATE)}

    def after_commit(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """The checkpoints that it has handed over: whether they need not be kept."""

        def checkpoint(*, passing: bool) -> Work:
            self.passing.append(passing)
            yield from ()

        monkeypatch.setattr(self.keeper, "done", lambda: False)
        monkeypatch.setattr(self.keeper, "checkpoint", checkpoint)
        assert list(self.keeper.after_commit()) == []
        return self.passing


def test_a_checkpoint_that_was_asked_for_waits_for_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(save_interval=UPDATE + 1)
    assert asked.after_commit(monkeypatch) == []
    asked.free = 1
    assert asked.after_commit(monkeypatch) == [True]
    # It was asked for once.
    assert asked.after_commit(monkeypatch) == [True]
    # One that is due waits.
    assert Asked(save_interval=UPDATE).after_commit(monkeypatch) == [False]


def test_an_update_that_is_being_evaluated_has_a_checkpoint_which_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Asked(save_interval=UPDATE + 1, wanted=False, judged=True)
    # The evaluator is busy: this update is left out.
    assert judged.after_commit(monkeypatch) == []
    judged.free = 1
    assert judged.after_commit(monkeypatch) == [True]
    lasting = Asked(save_interval=UPDATE, wanted=False, judged=True)
    lasting.free = 1
    assert lasting.after_commit(monkeypatch) == [False]
