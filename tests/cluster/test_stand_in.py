"""What home knows of a node on another machine, and what it shows to it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.cluster import stand_in as stand_ins
from penstock.cluster.crossing import watched
from penstock.cluster.cut import with_relay
from penstock.cluster.messages import Vitals
from penstock.cluster.stand_in import FollowerStandIn, stand_in
from penstock.nodes.contract import LaneStart
from penstock.planning import plan
from penstock.topologies import async_on_policy
from tests.cluster.handing import asking_program, sharing_program, spread_program, wired
from tests.nodes.test_takeover import Watched
from tests.planned import prepared

ENV = "env.1"
WRITER, LIFE = 5, 7


def vitals(life: int, **counters: int) -> Vitals:
    """What a host tells of a life whose counters it began at 0."""
    return Vitals(
        life, silent_ns=0, busy_ns=0, sign=0, handed_on=0, counters={"skipped": 0, "not_restored": 0, **counters}
    )


def test_what_earlier_lives_have_counted_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    program = with_relay(spread_program())
    wiring = wired(program)
    node = program.node(ENV)

    def counted(name: str) -> int:
        return wiring.counters.get(ENV, name)

    # A life at home has skipped two rollouts. The next one runs on a host.
    wiring.counters.add(ENV, "skipped", 2)
    first = stand_in(program, wiring, node, 2, (1,))
    first.see(vitals(2))
    assert counted("skipped") == 2
    first.see(vitals(2, skipped=3))
    first.see(vitals(2, skipped=3, not_restored=1))
    assert (counted("skipped"), counted("not_restored")) == (5, 1)
    # It dies. Home finds that one lane of the next life cannot be restored, before a host knows of that life.
    unrestored = (LaneStart(), LaneStart())

    def starts(settings: object, ports: SimpleNamespace, *given: object, **named: object) -> tuple[LaneStart, ...]:
        ports.count("not_restored")
        return unrestored

    monkeypatch.setattr(stand_ins, "lane_starts", starts)
    second = stand_in(program, wiring, node, 3, (1, 2))
    second.task(1, ())
    second.see(vitals(3))
    second.see(vitals(3, skipped=1))
    assert (counted("skipped"), counted("not_restored")) == (6, 2)


@pytest.mark.parametrize("pushed_at", range(1, 9))
def test_a_learner_is_shown_the_oldest_rollout_first_whenever_it_is_pushed(pushed_at: int) -> None:
    """Its environment node pushes two before one of the reads, sequences 0 and 2. Four slots are looked at twice."""
    program = spread_program()
    wiring = wired(program)
    found = FollowerStandIn(wiring, program.node("learner.1"), LIFE, (), watched(program))
    stream = wiring.stream("rollouts")
    assert stream.slots == 4
    assert [stream.claim(WRITER, sequence) for sequence in (0, 2)] == [0, 1]
    reads = 0

    def before() -> None:
        nonlocal reads
        reads += 1
        if reads == pushed_at:
            stream.push(0, WRITER)
            stream.push(1, WRITER)

    stream._words = Watched(stream._words, before)  # type: ignore[assignment]
    shown = [copy.sequence for _ in range(4) for copy in found.unseen()]
    assert shown == [0, 2]


@pytest.mark.parametrize(("max_policy_lag", "needs"), [(3, 1), (4, 0)])
def test_where_few_versions_may_pass_a_slot_is_free_only_behind_the_newest_policy(max_policy_lag, needs) -> None:
    settings = {"num_workers": 1, "num_envs": 2, "runtime": "ray", "sync_mode": "non_blocking"}
    found = prepared(**settings, max_policy_lag=max_policy_lag)
    program = with_relay(async_on_policy.build(plan(found, Path("run"), quiet=True)))
    wiring = wired(program)
    node = stand_in(program, wiring, program.node("env.0"), LIFE, ())
    assert node.next_needs() == 0
    board = wiring.board("policy")
    board.publish({spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}, 0)
    assert node.next_needs() == needs


def test_in_lock_step_a_slot_is_free_at_once() -> None:
    program = with_relay(sharing_program())
    wiring = wired(program)
    board = wiring.board("policy")
    board.publish({spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}, 0)
    assert stand_in(program, wiring, program.node("env.0"), LIFE, ()).next_needs() == 0


def test_a_policy_node_has_the_name_of_one_of_home_on_its_host_and_counts_under_its_own() -> None:
    program = with_relay(asking_program(policy_nodes=2))
    wiring = wired(program)
    found = stand_in(program, wiring, program.node("policy.1.2"), LIFE, ())
    node = found.task(1, ()).node
    assert (found.there, node.name, node.group) == ("policy.1", "policy.1", "policy.1")
    assert node.settings == program.node("policy.1").settings
    found.see(vitals(LIFE, busy_ns=5, idle_ns=15)._replace(handed_on=3))
    counted = {name: wiring.counters.get("policy.1.2", name) for name in ("busy_ns", "idle_ns", "handed_on")}
    assert counted == {"busy_ns": 5, "idle_ns": 15, "handed_on": 3}
    assert wiring.counters.get("policy.1", "busy_ns") == 0
