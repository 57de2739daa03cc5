"""The signs of life that a supervisor reads from a run's shared memory."""

import numpy as np
import pytest

from penstock.memory.segment import Segment
from penstock.program.graph import NodeSpec, Program, Record, Stream
from penstock.supervision import signs
from penstock.supervision.signs import SharedSigns
from penstock.types import ArraySpec, Cause
from penstock.wiring.edges import Wiring

SECOND = 1_000_000_000


class Run:
    """Two nodes of one group beside a learner, on a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, steps_envs: bool = False) -> None:
        nodes = (
            NodeSpec("learner", "learner", None, "learner"),
            NodeSpec("checkpointer", "checkpointer", None, "monitor", silence_limit_s=10.0),
            NodeSpec("monitor", "monitor", None, "monitor", silence_limit_s=10.0, steps_envs=steps_envs),
        )
        value = (ArraySpec("value", (), "int64"),)
        saved = Stream("saved", ("learner",), ("checkpointer",), value, 2, "wait")
        self.program = Program(nodes, (saved, Record("record", "learner", value)), ("learner",))
        self.wiring = Wiring(self.program.edges, [(node.name, node.group) for node in nodes])
        self.segment = Segment.create(self.wiring.nbytes, "test")
        self.wiring.attach(self.segment.bytes)
        self.signs = SharedSigns(self.wiring, self.program)
        self.now = 0
        monkeypatch.setattr(signs, "monotonic_ns", lambda: self.now)
        for node in nodes:
            self.wiring.counters.set(node.name, "heartbeat_ns", 1)

    def at(self, seconds: float, **heartbeats: float) -> None:
        self.now = int(seconds * SECOND)
        for node in self.program.nodes:
            self.wiring.counters.set(node.name, "heartbeat_ns", int(heartbeats.get(node.group, seconds) * SECOND))


def test_a_group_is_silent_once_its_loop_stands_still(monkeypatch) -> None:
    run = Run(monkeypatch)
    run.at(9.0, monitor=0.0)
    assert run.signs.silent(["monitor", "learner"]) is None
    run.at(11.0, monitor=0.0)
    silence = run.signs.silent(["monitor", "learner"])
    assert silence is not None
    assert (silence.group, silence.seconds) == ("monitor", 11.0)


def cause(run: Run) -> Cause:
    silence = run.signs.silent(["monitor", "learner"])
    assert silence is not None
    return silence.cause


def test_a_silent_node_that_steps_environments_is_in_a_slow_step_if_it_announced_no_work(monkeypatch) -> None:
    run = Run(monkeypatch, steps_envs=True)
    run.at(11.0, monitor=0.0)
    # The other node of its group was silent before.
    run.wiring.counters.set("monitor", "heartbeat_ns", 1)
    assert cause(run) is Cause.SLOW_STEP
    run.wiring.counters.set("monitor", "busy_until_ns", 5 * SECOND)
    assert cause(run) is Cause.SILENT
    run.wiring.counters.set("monitor", "busy_until_ns", 0)
    run.signs.stop()
    assert cause(run) is Cause.SLOW_STEP
    monkeypatch.setattr(run.signs, "needed", lambda group: False)
    assert cause(run) is Cause.SILENT, "while the run stops, the limit is another one"


def test_another_silent_node_is_in_no_step(monkeypatch) -> None:
    run = Run(monkeypatch)
    run.at(11.0, monitor=0.0)
    assert cause(run) is Cause.SILENT


def test_a_life_that_has_not_begun_did_not_start(monkeypatch) -> None:
    run = Run(monkeypatch)
    for name in ("checkpointer", "monitor"):
        run.wiring.counters.add(name, "begun", 1)
    run.signs.expect("monitor", 10.0)
    run.at(11.0, monitor=0.0)
    assert cause(run) is Cause.SLOW_START, "an earlier life had begun, and this one has not"
    run.wiring.counters.add("checkpointer", "begun", 1)
    assert cause(run) is Cause.SILENT, "its process opens the first of its nodes"


def test_a_run_is_saved_once_its_last_checkpoint_is_written(monkeypatch) -> None:
    run = Run(monkeypatch)
    ((_, saved),) = run.wiring.streams()
    slot = saved.claim(1, 0)
    saved.push(slot, 1)
    assert not run.signs.saved()
    run.wiring.counters.set("learner", "finished", 1)
    assert not run.signs.saved()
    assert saved.take(2) == slot
    saved.release(slot, 2)
    assert run.signs.saved()


def test_a_group_that_commits_has_achieved_what_it_committed(monkeypatch) -> None:
    """A learner whose every life fails hands its last checkpoint on again each time: that is no progress."""
    run = Run(monkeypatch)
    record = run.wiring.record("record")
    record.write({"value": np.int64(5)}, 0)
    for name in ("learner", "checkpointer"):
        run.wiring.counters.set(name, "handed_on", 3)
    before = [run.signs.achieved(group) for group in ("learner", "monitor")]
    for name in ("learner", "checkpointer"):
        run.wiring.counters.set(name, "handed_on", 4)
    assert [run.signs.achieved(group) for group in ("learner", "monitor")] == [before[0], before[1] + 1]
    record.write({"value": np.int64(6)}, 1)
    assert run.signs.achieved("learner") > before[0]


def test_a_sign_that_changes_is_one_of_life(monkeypatch) -> None:
    run = Run(monkeypatch)
    for lane, seconds in enumerate((1.0, 9.0, 18.0)):
        run.wiring.counters.view("monitor", "sign")[0] = lane
        run.at(seconds, monitor=0.0)
        assert run.signs.silent(["monitor", "learner"]) is None
    run.at(27.9, monitor=0.0)
    assert run.signs.silent(["monitor", "learner"]) is None
    run.at(28.1, monitor=0.0)
    assert run.signs.silent(["monitor", "learner"]) is not None


def test_while_a_run_stops_silence_is_borne_for_a_shorter_time_where_nothing_is_needed(monkeypatch) -> None:
    run = Run(monkeypatch)
    run.signs.stop()
    # The learner still has to hand over the last checkpoint, and the group ``monitor`` to write it.
    for group in ("learner", "monitor"):
        run.at(6.0, **{group: 0.0})
        assert run.signs.silent(["monitor", "learner"]) is None
        run.at(61.0, **{group: 0.0})
        assert run.signs.silent(["monitor", "learner"]) is not None
    run.wiring.counters.set("learner", "finished", 1)
    run.at(5.1, learner=0.0)
    assert run.signs.silent(["monitor", "learner"]) is not None
    run.at(4.9, learner=0.0)
    assert run.signs.silent(["monitor", "learner"]) is None
    # Announced work still has its whole time.
    run.wiring.counters.set("learner", "busy_until_ns", 300 * SECOND)
    run.at(200.0, learner=0.0)
    assert run.signs.silent(["monitor", "learner"]) is None


def test_a_run_comes_further_while_a_node_does_announced_work(monkeypatch) -> None:
    run = Run(monkeypatch)
    run.wiring.counters.set("monitor", "busy_until_ns", 10 * SECOND)
    run.at(1.0)
    before = run.signs.progress()
    run.at(9.0)
    assert run.signs.progress() != before
    run.at(11.0)
    overdue = run.signs.progress()
    run.at(12.0)
    assert run.signs.progress() == overdue


def test_announced_work_of_one_node_excuses_the_others_of_its_group(monkeypatch) -> None:
    run = Run(monkeypatch)
    run.wiring.counters.set("checkpointer", "busy_until_ns", 300 * SECOND)
    run.at(200.0, monitor=0.0)
    assert run.signs.silent(["monitor", "learner"]) is None
    run.at(301.0, monitor=0.0)
    assert run.signs.silent(["monitor", "learner"]) is not None


def test_time_in_which_the_machine_stood_still_is_no_silence(monkeypatch) -> None:
    run = Run(monkeypatch)
    run.wiring.counters.set("monitor", "busy_until_ns", 5 * SECOND)
    run.at(20.0, monitor=2.0)
    run.signs.excuse(15.0)
    assert run.signs.silent(["monitor", "learner"]) is None
    run.at(26.9, monitor=2.0)
    assert run.signs.silent(["monitor", "learner"]) is None
    run.at(27.1, monitor=2.0)
    silence = run.signs.silent(["monitor", "learner"])
    assert silence is not None
    assert silence.seconds == pytest.approx(10.1)
    # What came before a sign of life counts no more.
    run.at(40.0, monitor=29.0)
    assert run.signs.silent(["monitor", "learner"]) is not None


def test_what_only_the_dead_would_read_is_not_waited_for(monkeypatch) -> None:
    run = Run(monkeypatch)
    (_, saved), *_ = run.wiring.streams()
    for number in range(2):
        index = saved.claim(1, number)
        assert index is not None
        saved.push(index, 1)
    assert not run.signs.drained(["learner", "monitor"])
    assert not run.signs.deserted(["learner", "monitor"])
    assert run.signs.drained(["learner"])
    assert run.signs.deserted(["learner"])


def test_a_writer_that_drops_waits_for_no_dead_reader() -> None:
    """A run whose evaluator has failed for good still writes its last checkpoint."""
    nodes = tuple(NodeSpec(name, name, None, name) for name in ("learner", "evaluator"))
    value = (ArraySpec("value", (), "int64"),)
    program = Program(nodes, (Stream("evaluations", ("learner",), ("evaluator",), value, 1, "drop"),), ("learner",))
    wiring = Wiring(program.edges, [(node.name, node.group) for node in nodes])
    wiring.attach(Segment.create(wiring.nbytes, "test").bytes)
    requests = wiring.stream("evaluations")
    index = requests.claim(1, 0)
    assert index is not None
    requests.push(index, 1)
    assert not SharedSigns(wiring, program).deserted(["learner"])


def test_only_nodes_that_run_or_are_to_run_are_told_of_when_a_run_comes_no_further(monkeypatch) -> None:
    """The policy nodes of machines that have not joined yet, for instance, do not run."""
    run = Run(monkeypatch)
    assert [line.partition(":")[0] for line in run.signs.waits(["monitor"]).splitlines()] == ["checkpointer", "monitor"]
