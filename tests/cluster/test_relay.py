"""The relay with a machine that is none: whom it gives up, what it tells of, what it hands to a next life.

Also the order in which a host takes calls.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray

from penstock.cluster import host as hosts
from penstock.cluster import no_room, observation_fields, publications
from penstock.cluster import relay as relays
from penstock.cluster.cut import RELAY, host_program, with_relay
from penstock.cluster.followers import Followers
from penstock.cluster.messages import Batch, FilledSlot, FreeSlot, Publication, Task, Vitals
from penstock.cluster.parcels import packed
from penstock.cluster.relay import Relay
from penstock.cluster.spread_processes import SpreadProcesses
from penstock.cluster.stand_in import stand_in
from penstock.errors import NodeError, ResourceError
from penstock.memory.stream import Stream
from penstock.processes.log_lines import LogLine
from penstock.processes.starts import Processes
from penstock.processes.worker import WorkerSpec
from penstock.program.graph import Program
from penstock.supervision.lives import HOPELESS, Exit
from penstock.supervision.signs import SharedSigns
from penstock.types import Array, Cause
from penstock.wiring.edges import placement
from penstock.wiring.ports import NodePorts
from tests.cluster.handing import (
    asking_program,
    kept,
    ranking_program,
    sharded_program,
    sharing_program,
    spread_program,
    wired,
)
from tests.runtime.nodes import wait_until

GROUP = "learner.1"
"""A learner that may run on other machines."""


class Machine:
    """Answers each call at once, but for `collect`: that it answers when it is told to."""

    name = "a machine"

    def __init__(self) -> None:
        self.has_ended = False
        self.answers_slowly = False
        """Its answers are on their way for long, and meanwhile it gives signs of life."""
        self.answers: list[Callable[[Any, Any], None]] = []
        self.called: list[tuple[str, Any]] = []
        """The calls and their first arguments."""

    def call(self, name: str, replied: Callable[[Any, Any], None], *arguments: Any) -> None:
        if name == "give_sign":
            if self.answers_slowly:
                replied(None, None)
            return
        self.called.append((name, arguments[0]))
        if name == "collect":
            self.answers.append(replied)
        else:
            result = {"start": lambda: arguments[1].life, "publish": lambda: arguments[1].number}
            replied(result.get(name, lambda: None)(), None)

    def answer(
        self,
        *exits: tuple[int, Exit],
        filled: Sequence[FilledSlot] = (),
        log_lines: Sequence[LogLine] = (),
        **vitals: Vitals,
    ) -> None:
        self.answers.pop()(Batch(list(filled), list(exits), vitals, log_lines), None)

    def ranked(self) -> list[list[float]]:
        """The priorities of each minibatch that it was told of."""
        fed = [news for name, news in self.called if name == "feed"]
        return [ranked.priorities.tolist() for news in fed for ranked in news.ranked]

    def end(self) -> None:
        self.has_ended = True


class Home:
    """A relay with its thread, and a clock that is set by hand."""

    def __init__(self, program: Program) -> None:
        self.program = with_relay(program)
        self.wiring = wired(self.program)
        self.relay = Relay(self.program, self.wiring, kept)
        self.now = 1000.0
        self.relay.begin(1, ())

    def start(self, machine: Machine, life: int, group: str = GROUP) -> None:
        part = placement(self.program, group)
        self.relay.start(machine, WorkerSpec(part, {group: life}, {group: tuple(range(1, life))}), 1, ())
        # Its reply is heard now, not later.
        self.pass_time(0.0)

    def pass_time(self, seconds: float) -> None:
        """Let the relay look at its machines at least every ``LATE_S``, for so long."""
        while seconds > relays.LATE_S:
            self.stand_still(relays.LATE_S)
            seconds -= relays.LATE_S
        self.stand_still(seconds)

    def stand_still(self, seconds: float) -> None:
        """Let the relay look at its machines so much later, and not in between."""
        self.now += seconds
        for _ in range(2):
            before = self.wiring.counters.get(RELAY, "heartbeat_ns")
            self.wiring.bells.ring(self.wiring.bell_of(RELAY))
            assert wait_until(lambda: self.wiring.counters.get(RELAY, "heartbeat_ns") != before, 60)  # noqa: B023


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Home]:
    """Of the run with two learners, or of the program that a test gives."""
    monkeypatch.setattr(publications, "as_object", lambda content: content)
    monkeypatch.setattr(publications, "put_again", lambda held: held)
    made = Home(getattr(request, "param", spread_program)())
    monkeypatch.setattr(relays, "time", SimpleNamespace(monotonic=lambda: made.now))
    yield made
    made.relay.close()


def test_only_a_machine_that_was_asked_is_given_up_for_its_silence(home: Home) -> None:
    idle, silent = Machine(), Machine()
    home.start(idle, 1)
    home.relay.kill(GROUP)
    idle.answer()
    # It runs nothing any more, so nobody asks it.
    home.pass_time(10 * relays.SILENCE_S)
    assert not idle.answers
    assert not home.relay.lost()
    # Its silence until now counts for nothing either.
    home.start(idle, 2)
    home.pass_time(relays.SILENCE_S - 1.0)
    assert not home.relay.lost()
    home.relay.kill(GROUP)
    idle.answer()
    home.start(silent, 3)
    home.pass_time(relays.SILENCE_S + 1.0)
    assert home.relay.lost() == {silent}
    assert (silent.has_ended, idle.has_ended) == (True, False)
    assert [ended.group for ended in home.relay.exits()] == [GROUP]


def test_a_machine_whose_answer_is_on_its_way_for_long_is_not_given_up(home: Home) -> None:
    slow = Machine()
    slow.answers_slowly = True
    home.start(slow, 1)
    slow.answer()
    # Nothing is known of its node meanwhile, so the node counts as alive.
    home.pass_time(2.0)
    home.wiring.counters.set(GROUP, "heartbeat_ns", 0)
    home.pass_time(3 * relays.SILENCE_S)
    assert not home.relay.lost()
    assert home.wiring.counters.get(GROUP, "heartbeat_ns") > 0
    slow.answer()
    home.pass_time(relays.ANSWER_LIMIT_S - 2.0)
    assert not home.relay.lost()
    home.pass_time(2 * relays.LATE_S)
    assert home.relay.lost() == {slow}
    (ended,) = home.relay.exits()
    assert ended.detail == "an answer of a machine did not come within 120 s"


def test_a_question_of_home_while_an_answer_is_on_its_way_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = Paused(monkeypatch)
    for _ in range(3):
        for _ in range(round((hosts.SILENCE_S - 1.0) / hosts.LOOK_S)):
            paused.now += hosts.LOOK_S
            paused.host._wake()
        asyncio.run(paused.host.give_sign())
    assert paused.alive


def test_where_the_link_is_the_limit_every_node_is_served_and_every_end_told(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = Paused(monkeypatch)
    exits: list[Exit] = []
    monkeypatch.setattr(paused, "exits", lambda: [exits.pop()] if exits else [], raising=False)
    monkeypatch.setattr(paused, "log_lines", list, raising=False)
    monkeypatch.setattr(hosts.Host, "_listen", lambda _: None)
    monkeypatch.setattr(hosts, "REPLY_S", 0.0)
    # One slot is more than an answer has.
    monkeypatch.setattr(hosts, "PART_BYTES", 1)
    host, groups = paused.host, ["env.0", "env.1", "env.2"]
    tasks = {group: Task(SimpleNamespace(name=group), 1, (), 1, ()) for group in groups}
    streams = {group: Filled() for group in groups}
    monkeypatch.setattr(host, "_tasks", tasks)
    monkeypatch.setattr(host, "_streams", streams)
    monkeypatch.setattr(host, "_vitals", dict)
    served = []
    for number in range(9):
        if number == 4:
            exits.append(Exit("env.1", 1, ""))
            streams["env.1"].endless = False
        batch = asyncio.run(host.collect(()))
        served += [one.group for one in batch.filled]
        # The end of a process comes behind all that it has filled.
        assert not batch.exits or streams["env.1"].ready() == 0
        told = [one.group for _, one in batch.exits]
        if told:
            break
    assert told == ["env.1"]
    assert served[:6] == groups * 2


class Filled:
    """A stream that is filled as fast as it is emptied; of a dead node, two slots are left."""

    def __init__(self) -> None:
        self.endless, self.left = True, 2

    def take(self, owner: int) -> int | None:
        if not self.endless:
            self.left -= 1
        return 0 if self.endless or self.left >= 0 else None

    def ready(self) -> int:
        return 1 if self.endless else max(0, self.left)

    def slot(self, index: int) -> dict[str, np.ndarray]:
        return {"reward": np.zeros(8, np.float32)}

    def sequence(self, index: int) -> int:
        return 1


def test_a_machine_is_lost_also_if_there_is_no_room_for_what_others_need(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = home.wiring.board("parameters")
    board.publish({spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}, 1)
    lost = Machine()
    home.start(lost, 1)
    assert "publish" in [name for name, _ in lost.called]
    monkeypatch.setattr(publications, "put_again", lambda held: None)
    home.pass_time(relays.SILENCE_S + 1.0)
    (ended,) = home.relay.exits()
    assert (ended.group, ended.cause) == (GROUP, Cause.LOST)
    assert "told nothing for 15 s; Ray's object store is full" in ended.detail
    # The relay goes on.
    other = Machine()
    home.start(other, 2)
    assert "publish" in [name for name, _ in other.called]


def full_store(there: bool = False) -> BaseException:
    """The error of a call for which an object store has no room: that of home, or that of the host."""
    full = ray.exceptions.ObjectStoreFullError("no room for 10 MB")
    return ray.exceptions.RayTaskError("collect", "its traceback", full).as_instanceof_cause() if there else full


FULL = (
    "Ray's object store on {} is full, so the run waits for room, for at most 270 s; "
    "to have more, start Ray there with ray start --object-store-memory BYTES"
)


def started_without_room(home: Home, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a node, and parameters that wait: the object store of home is full."""

    def full(content: object) -> object:
        raise full_store()

    monkeypatch.setattr(publications, "as_object", full)
    board = home.wiring.board("parameters")
    board.publish({spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}, 1)
    machine = Machine()
    home.start(machine, 1)
    return machine


def test_a_run_waits_for_room_in_the_object_store_of_home(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = started_without_room(home, monkeypatch)
    for _ in range(20):
        machine.answer()
        home.pass_time(relays.LATE_S)
    assert [name for name, _ in machine.called if name != "collect"] == ["start"]
    assert home.relay.log_lines() == [LogLine(RELAY, "WARNING", FULL.format("the launcher's machine"), 1)]
    assert caplog.messages == [FULL.format("the launcher's machine")]
    monkeypatch.setattr(publications, "as_object", lambda content: content)
    machine.answer()
    home.pass_time(no_room.RETRY_S)
    assert [name for name, _ in machine.called if name != "collect"] == ["start", "publish"]
    assert home.relay.exits() == []
    assert home.relay.log_lines() == []


def test_a_run_that_finds_no_room_for_most_of_the_stall_timeout_ends_with_its_reason(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = started_without_room(home, monkeypatch)
    waited = 0.0
    while not (ended := home.relay.exits()):
        machine.answer()
        home.pass_time(relays.LATE_S)
        waited += relays.LATE_S
    assert waited == 275.0
    assert [(one.group, one.status) for one in ended] == [(RELAY, HOPELESS)]
    assert NodeError(RELAY, ended[0].detail).line == (
        "Ray's object store on the launcher's machine has been full for 275 s; to have more, start Ray there with "
        "ray start --object-store-memory BYTES"
    )
    assert not home.relay.lost()


class FullMachine(Machine):
    """Calls of this name find no room in the object store of home, as often as it is told."""

    def __init__(self, name: str, times: int) -> None:
        super().__init__()
        self.full, self.times = name, times

    def call(self, name: str, replied: Callable[[Any, Any], None], *arguments: Any) -> None:
        if name == self.full and self.times:
            self.times -= 1
            replied(None, full_store())
            return
        super().call(name, replied, *arguments)


@pytest.mark.parametrize("name", ["start", "publish"])
def test_a_call_whose_arguments_find_no_room_is_made_again(home: Home, name: str) -> None:
    board = home.wiring.board("parameters")
    board.publish({spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}, 1)
    machine = FullMachine(name, 2)
    home.start(machine, 1)
    assert name not in [called for called, _ in machine.called]
    home.pass_time(no_room.RETRY_S)
    assert machine.times == 0
    home.pass_time(no_room.RETRY_S)
    assert [called for called, _ in machine.called].count(name) == 1
    assert home.relay.exits() == []


def test_no_call_is_made_again_to_a_machine_that_was_given_up(home: Home) -> None:
    machine = FullMachine("start", 1000)
    home.start(machine, 1)
    # It answers nothing, and its own silence counts.
    home.pass_time(relays.START_SILENCE_S + 2.0)
    assert home.relay.lost() == {machine}
    left = machine.times
    home.pass_time(400.0)
    assert machine.times == left
    assert [ended.group for ended in home.relay.exits()] == [GROUP]


def test_what_a_host_has_collected_comes_once_its_object_store_has_room(home: Home) -> None:
    machine = Machine()
    home.start(machine, 1)
    lines = [LogLine(GROUP, "WARNING", "too hot", 1)]
    again: list[Callable[[Any, Any], None]] = []
    call = machine.call

    def called(name: str, replied: Callable[[Any, Any], None], *arguments: Any) -> None:
        if name == "collect_again":
            again.append(replied)
        else:
            call(name, replied, *arguments)

    machine.call = called  # type: ignore[method-assign]
    machine.answers.pop()(None, full_store(there=True))
    home.pass_time(0.0)
    assert home.relay.log_lines() == [LogLine(RELAY, "WARNING", FULL.format("a machine"), 1)]
    assert not again
    for _ in range(4):
        home.pass_time(relays.LATE_S)
        again.pop()(None, full_store(there=True))
        home.wiring.counters.set(GROUP, "heartbeat_ns", 0)
        home.pass_time(0.0)
        # The machine is not silent. What is known of its nodes is in the answer that does not come.
        assert home.wiring.counters.get(GROUP, "heartbeat_ns") > 0
    assert not home.relay.lost()
    assert machine.answers == []
    home.pass_time(no_room.RETRY_S)
    again.pop()(Batch([], [(1, Exit(GROUP, 1, "its traceback"))], {}, lines), None)
    home.pass_time(0.0)
    assert home.relay.log_lines() == [LogLine(f"{GROUP} on a machine", "WARNING", "too hot", 1)]
    assert [ended.group for ended in home.relay.exits()] == [GROUP]
    home.pass_time(300.0)
    assert home.relay.exits() == []


def test_another_error_of_a_hosts_own_code_ends_the_run(home: Home) -> None:
    machine = Machine()
    home.start(machine, 1)
    # Ray ends the traceback with the line of the error.
    raised = ray.exceptions.RayTaskError("collect", "its traceback\nValueError: no slot", ValueError("no slot"))
    error: Any = raised.as_instanceof_cause()
    machine.answers.pop()(None, error)
    assert wait_until(lambda: RELAY not in home.relay.running(), 60)
    (ended,) = home.relay.exits()
    assert (ended.group, ended.status) == (RELAY, HOPELESS)
    assert "no slot" in ended.detail


def test_what_was_not_heard_while_the_launcher_stood_still_counts_for_nothing(home: Home) -> None:
    machine = Machine()
    home.start(machine, 1)
    machine.answer()
    home.stand_still(10 * relays.SILENCE_S)
    assert not home.relay.lost()
    home.pass_time(relays.SILENCE_S + 1.0)
    assert home.relay.lost() == {machine}


def test_a_machine_that_is_asked_right_after_the_launcher_stood_still_has_no_more_time(home: Home) -> None:
    machine = Machine()
    home.start(machine, 1)
    home.relay.kill(GROUP)
    machine.answer()
    home.pass_time(0.0)
    # The machine was lost meanwhile, and the supervisor goes on first.
    machine.call = lambda *_: None  # type: ignore[method-assign]
    with home.relay._lock:
        home.now += 10 * relays.SILENCE_S
        part = placement(home.program, GROUP)
        home.relay.start(machine, WorkerSpec(part, {GROUP: 2}, {GROUP: (1,)}), 1, ())
    home.pass_time(relays.SILENCE_S + 1.0)
    assert home.relay.lost() == {machine}


def test_a_node_is_not_blamed_for_the_silence_of_its_machine(home: Home) -> None:
    machine, minute_ns = Machine(), 60 * 10**9

    def silent() -> bool:
        return SharedSigns(home.wiring, home.program).silent([GROUP]) is not None

    def told(silent_ns: int) -> dict[str, Vitals]:
        return {GROUP: Vitals(1, silent_ns, busy_ns=0, sign=0, handed_on=0, counters={})}

    home.start(machine, 1)
    machine.answer(**told(minute_ns - 10**9))
    home.pass_time(0.0)
    assert not silent()
    # The machine is paused, or its link is cut, for less time than it takes to give it up.
    home.wiring.counters.set(GROUP, "heartbeat_ns", time.monotonic_ns() - 2 * minute_ns)
    home.pass_time(relays.SILENCE_S - 1.0)
    assert not home.relay.lost()
    assert not silent()
    # Then it tells that the node hangs.
    machine.answer(**told(2 * minute_ns))
    home.pass_time(0.0)
    assert silent()


def test_a_machine_that_is_lost_is_named_with_what_ray_says_of_it(home: Home) -> None:
    import ray

    lost = Machine()
    home.start(lost, 1)
    lost.answers.pop()(None, ray.exceptions.ActorUnavailableError("Socket closed", None))
    home.pass_time(0.0)
    (ended,) = home.relay.exits()
    assert ended.cause is Cause.LOST
    assert ended.detail.startswith("a machine was lost: ")
    assert "Socket closed" in ended.detail


def test_rows_that_are_lost_with_a_machine_are_counted_and_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.start(Machine(), 1)
    monkeypatch.setattr(home.relay._publications, "lose", lambda machine: publications.Loss(1234, no_room=False))
    home.pass_time(relays.SILENCE_S + 1.0)
    (ended,) = home.relay.exits()
    assert ended.detail.endswith("; 1,234 rows of the replay table are lost with it (--table_on learners)")
    assert home.wiring.counters.get(RELAY, "lost") == 1234


def test_a_node_that_starts_on_a_machine_that_was_just_given_up_goes_on_elsewhere(home: Home) -> None:
    lost = Machine()
    home.start(lost, 1)
    home.pass_time(relays.SILENCE_S + 1.0)
    assert [ended.group for ended in home.relay.exits()] == [GROUP]
    # The supervisor had chosen the machine before it was given up.
    home.start(lost, 2)
    (ended,) = home.relay.exits()
    assert (ended.group, ended.cause) == (GROUP, Cause.LOST)
    assert GROUP not in home.relay.running()


def test_a_relay_that_stood_still_begins_again_and_so_do_the_nodes_on_hosts(home: Home) -> None:
    machine = Machine()
    home.start(machine, 1)
    home.relay.give_up()
    assert RELAY not in home.relay.running()
    (ended,) = home.relay.exits()
    assert (ended.group, ended.cause) == (GROUP, Cause.LOST)
    assert machine.called[-1] == ("stop", GROUP)
    home.relay.begin(2, (1,))
    other = Machine()
    home.start(other, 2)
    assert set(home.relay.running()) == {RELAY, GROUP}
    assert "start" in [name for name, _ in other.called]


def test_an_end_that_nobody_has_heard_of_does_not_count_for_the_next_life(home: Home) -> None:
    home.start(Machine(), 1)
    home.pass_time(relays.SILENCE_S + 1.0)
    # The supervisor has found the node silent in the meantime, and ends it.
    home.relay.kill(GROUP)
    assert home.relay.exits() == []


def test_a_node_that_ends_elsewhere_while_its_stacks_are_asked_for_has_none(home: Home) -> None:
    """The supervisor has seen that it runs, and looks at all stacks, because the run comes no further."""
    lost = Machine()
    home.start(lost, 1)
    (group,) = [found for found in home.relay.running() if found != RELAY]
    home.pass_time(relays.SILENCE_S + 1.0)
    with Processes() as here:
        both: Any = SimpleNamespace(_relay=home.relay, _here=here)
        assert SpreadProcesses.stacks(both, [group]) == {group: "It has ended."}


def test_a_host_has_slots_for_all_that_a_new_life_is_handed(home: Home) -> None:
    """The owner of the parameters has settled the first of three gradients, and died before it freed its slot."""
    edge = home.program.edge("gradients")
    gradients = Stream(home.wiring.bytes_of("gradients"), edge.arrays, edge.slots)
    for step in (1, 2, 3):
        index = gradients.claim(7, 2 * step)
        slot = gradients.slot(index)
        slot["learner"][...], slot["step"][...] = 0, step
        gradients.push(index, 7)
    parameters = home.wiring.board("parameters")
    settled = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in parameters.specs}
    settled["settled"][0] = 1
    parameters.publish(settled, 1)
    task = stand_in(home.program, home.wiring, home.program.node(GROUP), 8, (7,)).task(1, ())
    assert [copy.sequence for copy in task.handed_on] == [4, 6]
    program = host_program(spread_program())
    Followers(program, wired(program), 99).begin(task)


@pytest.mark.parametrize("home", [ranking_program], indirect=True)
def test_what_a_learner_on_one_machine_ranks_counts_at_home_and_is_told_to_all_machines(home: Home) -> None:
    table, trees = home.wiring.table_memory("rollouts"), home.wiring.trees("rollouts")
    assert trees is not None
    table.claim(0, 0)
    trees.set(0, 0, np.full(16, 2.0))
    table.push(0, 0)
    first, second = Machine(), Machine()
    home.start(first, 1, "learner.1")
    home.start(second, 1, "learner.2")

    def filled(step: int, priority: float) -> FilledSlot:
        """Gradients on the first eight rows."""
        edge = home.program.edge("gradients")
        slot = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in edge.arrays}
        slot["row"][...], slot["priority"][...] = np.arange(8), priority
        return FilledSlot("learner.1", 1, 0, 2 * step, packed(slot), {}, {})

    def told() -> tuple[list[list[float]], ...]:
        home.pass_time(0.0)
        return first.ranked(), second.ranked()

    assert told() == ([], [])
    first.answer(filled=[filled(1, 5.0), filled(2, 3.0)])
    assert told() == ([[5.0] * 8, [3.0] * 8],) * 2
    assert trees.read(np.arange(16)).tolist() == [3.0] * 8 + [2.0] * 8
    # Its life is over. What its machine still sends of it counts for nothing.
    home.relay.kill("learner.1")
    first.answer(filled=[filled(3, 7.0)])
    assert told() == ([[5.0] * 8, [3.0] * 8],) * 2
    assert trees.read(np.arange(16)).tolist() == [3.0] * 8 + [2.0] * 8


def test_calls_that_overtake_each_other_start_no_life_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Processes:
        def start(self, segment: object, spec: WorkerSpec, threads: int, imports: object) -> None:
            started.append(spec.lives[GROUP])

        def running(self) -> list[str]:
            return []

    monkeypatch.setattr(hosts, "Processes", Processes)
    program = host_program(spread_program())
    host = hosts.Host(program, [])

    async def take() -> None:
        def task(life: int) -> Task:
            return Task(program.node(GROUP), life, (), 1, ())

        await host.stop(GROUP, 3)
        assert await host.start(GROUP, task(3)) == 3
        await host.start(GROUP, task(5))
        await host.stop(GROUP, 4)
        await host.start(GROUP, task(4))

    asyncio.run(take())
    assert started == [5]


def test_a_host_leaves_out_what_comes_after_a_newer_publication() -> None:
    """After a loss home sends a publication twice, and Ray may bring the first one long after the second."""
    host = hosts.Host(host_program(sharing_program()), [])
    goals, slots = host._wiring.board("goals"), [host._viewed.slot(index) for index in range(3)]
    assert not any(slot["reward"].any() for slot in slots)

    def publication(number: int) -> tuple[str, Publication, dict[int, Array]]:
        arrays = {spec.name: np.full(spec.shape, number, spec.dtype) for spec in goals.specs}
        rollout = {name: np.full_like(array, number) for name, array in slots[number - 1].items()}
        return "goals", Publication(number, 7, packed(arrays)), {number - 1: packed(rollout)}

    for number in (1, 3, 2):
        # Home compares the number with the one that it waits for.
        assert asyncio.run(host.publish(*publication(number))) == number
    found = {spec.name: np.empty(spec.shape, spec.dtype) for spec in goals.specs}
    assert goals.read(found) == 7
    assert (found["slots"] == 3).all()
    assert [float(slot["reward"].max()) for slot in slots] == [1.0, 0.0, 3.0]


@pytest.mark.parametrize(("group", "total"), [(GROUP, 10.0), ("env.0", 5.0)])
def test_a_learner_that_dies_while_it_ranks_rows_leaves_no_sum_out_of_date(
    monkeypatch: pytest.MonkeyPatch, group: str, total: float
) -> None:
    """A look at all sums would make the memory of the whole tree resident, so no other node is followed by one."""

    class Processes:
        def start(self, segment: object, spec: WorkerSpec, threads: int, imports: object) -> None: ...

        def running(self) -> list[str]:
            return [group]

        def kill(self, killed: str) -> None:
            # Until now it ran. It has changed a leaf from 2 to 7, and has not come to the sum above.
            assert killed == group
            tree._leaves[0] = 7 << 22

    monkeypatch.setattr(hosts, "Processes", Processes)
    program = host_program(ranking_program())
    host = hosts.Host(program, [])
    trees = host._wiring.trees("rollouts")
    assert trees is not None
    tree = trees.shard(0)
    tree.set(0, 0, np.array([2.0, 3.0]))
    asyncio.run(host.start(group, Task(program.node(group), 1, (), 1, ())))
    asyncio.run(host.stop(group, 1))
    assert (trees.read(np.arange(2)).tolist(), tree.total()) == ([7.0, 3.0], total)


def test_a_process_that_the_system_refuses_on_a_host_is_told_to_home(monkeypatch: pytest.MonkeyPatch) -> None:
    class Processes:
        def start(self, segment: object, spec: WorkerSpec, threads: int, imports: object) -> None:
            raise ResourceError("too many open files")

        def running(self) -> list[str]:
            return []

        def exits(self) -> list[Exit]:
            return []

    monkeypatch.setattr(hosts, "Processes", Processes)
    program = host_program(spread_program())
    host = hosts.Host(program, [])
    assert asyncio.run(host.start(GROUP, Task(program.node(GROUP), 3, (), 1, ()))) == 3
    assert host._exits() == [(3, Exit(GROUP, 1, "too many open files", Cause.REFUSED))]
    assert host._exits() == []


def test_what_a_node_logs_on_a_machine_comes_with_the_name_of_the_machine(home: Home) -> None:
    machine = Machine()
    home.start(machine, 1)
    machine.answer(log_lines=[LogLine(GROUP, "WARNING", "too hot", 3)])
    home.pass_time(0.0)
    assert home.relay.log_lines() == [LogLine(f"{GROUP} on a machine", "WARNING", "too hot", 3)]
    assert home.relay.log_lines() == []


def test_a_host_tells_home_what_its_processes_have_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [LogLine(GROUP, "WARNING", "too hot", 1)]

    class Processes:
        def start(self, segment: object, spec: WorkerSpec, threads: int, imports: object) -> None: ...

        def running(self) -> list[str]:
            return []

        def exits(self) -> list[Exit]:
            return [Exit(GROUP, 1, "its traceback")]

        def log_lines(self) -> list[LogLine]:
            return lines

    monkeypatch.setattr(hosts, "Processes", Processes)
    monkeypatch.setattr(hosts.Host, "_listen", lambda _: None)
    program = host_program(spread_program())
    host = hosts.Host(program, [])

    async def collected() -> Batch:
        await host.start(GROUP, Task(program.node(GROUP), 3, (), 1, ()))
        return await host.collect(())

    batch = asyncio.run(collected())
    assert (batch.exits, batch.log_lines) == ([(3, Exit(GROUP, 1, "its traceback"))], lines)


class Paused:
    """A host with one node, and a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.alive: list[str] = []
        monkeypatch.setattr(hosts, "Processes", lambda: self)
        clock = SimpleNamespace(monotonic=lambda: self.now, monotonic_ns=lambda: int(self.now * 1e9))
        monkeypatch.setattr(hosts, "time", clock)
        program = host_program(spread_program())
        self.host = hosts.Host(program, [])
        asyncio.run(self.host.start(GROUP, Task(program.node(GROUP), 1, (), 1, ())))
        self.host._wake()

    def start(self, segment: object, spec: WorkerSpec, threads: int, imports: object) -> None:
        self.alive.append(GROUP)

    def kill(self, group: str) -> None:
        self.alive.remove(group)

    def running(self) -> list[str]:
        return list(self.alive)

    def silent_s(self) -> float:
        return self.host._vitals()[GROUP].silent_ns / 1e9

    def seconds_until_home_is_lost(self) -> float:
        since = self.now
        while self.alive:
            self.now += hosts.LOOK_S
            self.host._wake()
        return self.now - since


def test_a_host_that_stood_still_blames_neither_home_nor_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = Paused(monkeypatch)
    assert paused.silent_s() == 0
    # The machine is paused. Home has asked before, and waits.
    paused.now += 1.5 * hosts.SILENCE_S
    assert paused.silent_s() == hosts.LATE_S
    paused.host._wake()
    assert paused.alive
    # It does not ask again either.
    lost = paused.seconds_until_home_is_lost()
    assert hosts.SILENCE_S - 2.0 < lost < hosts.SILENCE_S + 1.0
    assert paused.silent_s() == pytest.approx(lost + hosts.LATE_S)


def test_a_host_that_stood_still_notices_as_soon_as_ever_that_home_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """What home has asked meanwhile is taken before the host looks at its clock. Then home is lost."""
    paused = Paused(monkeypatch)
    paused.now += 30 * hosts.SILENCE_S
    asyncio.run(paused.host.show(GROUP, 1, ()))
    assert paused.seconds_until_home_is_lost() < hosts.SILENCE_S + 1.0


def test_a_host_tells_whether_the_latest_life_of_a_node_has_begun_to_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Paused(monkeypatch).host
    host._wiring.counters.add(GROUP, "begun", 1)
    assert host._vitals()[GROUP].counters["begun"] == 1
    asyncio.run(host.start(GROUP, Task(host._program.node(GROUP), 2, (), 1, ())))
    assert host._vitals()[GROUP].counters["begun"] == 0


def test_a_host_that_stood_still_alone_tells_when_its_nodes_were_last_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = Paused(monkeypatch)
    paused.now += 90.0
    paused.host._wiring.counters.set(GROUP, "heartbeat_ns", int((paused.now - 0.25) * 1e9))
    assert 0.0 <= paused.silent_s() <= 0.25
    # From now on it hangs.
    paused.now += 0.5
    assert 0.5 <= paused.silent_s() <= 0.75


def test_a_host_has_its_last_answer_until_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = Paused(monkeypatch)
    exits = [Exit(GROUP, 1, "its traceback")]
    monkeypatch.setattr(paused, "exits", lambda: [exits.pop()] if exits else [], raising=False)
    monkeypatch.setattr(paused, "log_lines", list, raising=False)
    monkeypatch.setattr(hosts.Host, "_listen", lambda _: None)
    monkeypatch.setattr(hosts, "REPLY_S", 0.0)
    first = asyncio.run(paused.host.collect(()))
    assert first.exits == [(1, Exit(GROUP, 1, "its traceback"))]
    paused.now += 2.0
    again = asyncio.run(paused.host.collect_again())
    assert again.exits == first.exits
    # Its signs of life are those of now.
    assert again.vitals[GROUP].silent_ns != first.vitals[GROUP].silent_ns
    assert asyncio.run(paused.host.collect(())).exits == []
    assert asyncio.run(paused.host.collect_again()).exits == []


@pytest.mark.parametrize("home", [asking_program], indirect=True)
def test_the_policy_nodes_of_machines_are_told_apart_although_each_has_the_name_of_that_of_home(home: Home) -> None:
    first, second = Machine(), Machine()
    home.start(first, 1, "policy.0.1")
    home.start(second, 2, "policy.0.2")
    assert [machine.called[0] for machine in (first, second)] == [("start", "policy.0")] * 2
    counted = {"busy_ns": 7, "idle_ns": 0, "skipped": 0, "not_restored": 0}
    vitals = Vitals(2, 0, busy_ns=0, sign=0, handed_on=4, counters=counted)
    second.answer(log_lines=[LogLine("policy.0", "WARNING", "too hot", 1)], **{"policy.0": vitals})
    home.pass_time(0.0)
    assert home.relay.log_lines() == [LogLine("policy.0.2 on a machine", "WARNING", "too hot", 1)]
    names = ("policy.0", "policy.0.1", "policy.0.2")
    assert [home.wiring.counters.get(name, "busy_ns") for name in names] == [0, 0, 7]
    first.answer((1, Exit("policy.0", -9, "")))
    home.pass_time(0.0)
    assert [ended.group for ended in home.relay.exits()] == ["policy.0.1"]
    assert home.relay.machine_of("policy.0.1") is None
    home.relay.kill("policy.0.2")
    assert second.called[-1] == ("stop", "policy.0")


class FarMachine(Machine):
    """It also answers for observations only when it is told to."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.actor = name, f"the host on {name}"
        self.asked: list[tuple[str, tuple[Any, ...], Callable[[Any, Any], None]]] = []
        self.tasks: list[Task] = []

    def call(self, name: str, replied: Callable[[Any, None], None], *arguments: Any) -> None:
        if name in {"fetch", "observations"}:
            self.asked.append((name, arguments, replied))
            return
        if name == "start":
            self.tasks.append(arguments[1])
        super().call(name, replied, *arguments)


class Far(Home):
    """A run whose second learner is on one machine, and an environment node of its shard on another one."""

    def __init__(self) -> None:
        super().__init__(sharded_program(num_workers=4, table_on="learners"))
        self.table = self.wiring.table_memory("rollouts")
        self.source, self.target = FarMachine("source"), FarMachine("target")
        self.slot = {name: np.zeros_like(array[0]) for name, array in self.table.arrays.items()}
        self.slot["lane_position"][:, 2] = self.slot["lane_collected"][...] = 8
        self.slot["reward"][...], self.slot["obs"][...] = 3, 5

    def collect(self) -> None:
        """The host has a rollout in its slot 1. Its observations stay there."""
        fields = observation_fields.observation_fields(self.program)
        parcel = packed(observation_fields.without(self.slot, fields))
        filled = FilledSlot("env.2", 1, 1, 6, parcel, {}, {}, apart=True)
        self.source.answers.pop()(Batch([filled], [], {}, ()), None)
        self.pass_time(0.0)

    def pushed(self) -> list[int]:
        return [self.table.written(writer) for writer in range(4)]


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    monkeypatch.setattr(observation_fields, "LEAST_BYTES", 0)
    made = Far()
    monkeypatch.setattr(relays, "time", SimpleNamespace(monotonic=lambda: made.now))
    made.start(made.source, 1, "env.2")
    made.start(made.target, 1)
    yield made
    made.relay.close()


def test_a_rollout_counts_once_its_observations_are_with_its_learner(far: Far) -> None:
    assert [(task.node.name, task.apart) for task in far.source.tasks + far.target.tasks] == [
        ("env.2", True),
        ("learner.1", False),
    ]
    far.collect()
    ((name, (host, (wanted,)), replied),) = far.target.asked
    assert (name, host) == ("fetch", far.source.actor)
    assert (wanted.group, wanted.slot, wanted.writer, wanted.name) == ("env.2", 1, 2, (1, 6))
    assert far.pushed() == [0, 0, 0, 0]
    # The slot on the host is not free: what it holds may be asked for again.
    assert far.source.called[-1] == ("collect", [])
    replied([True], None)
    far.pass_time(0.0)
    assert far.pushed() == [0, 0, 1, 0]
    assert not far.source.asked
    index = far.table.index(2, 0)
    assert (far.table.arrays["reward"][index] == 3).all()
    assert not far.table.arrays["obs"][index].any()
    # The host was asked for rollouts already. It may have none until this slot is free.
    assert far.source.called[-1] == ("release", [FreeSlot("env.2", 1, 1)])
    # What the learner's machine alone has is lost with it: a rollout of eight steps of one lane.
    far.pass_time(relays.SILENCE_S - 1.0)
    far.source.answer()
    far.pass_time(2.0)
    assert far.relay.lost() == {far.target}
    assert far.wiring.counters.get(RELAY, "lost") == 8


@pytest.mark.parametrize("fetched", [False, True], ids=["before its answer", "after its answer"])
def test_a_rollout_that_was_on_its_way_to_a_lost_machine_is_not_lost(far: Far, fetched: bool) -> None:
    if fetched:
        # The rate limiter makes the rollout wait: enough rows were collected.
        far.wiring.counters.set("env.3", "collected", 10**9)
    far.collect()
    ((_, _, replied),) = far.target.asked
    if fetched:
        replied([True], None)
        far.pass_time(0.0)
        assert far.pushed() == [0, 0, 0, 0]
        with far.relay._lock:
            far.relay._lose(far.target, "its link is cut")
            far.wiring.counters.set("env.3", "collected", 0)
    else:
        far.pass_time(relays.SILENCE_S - 1.0)
        far.source.answer()
        far.pass_time(2.0)
    assert far.relay.lost() == {far.target}
    far.pass_time(0.0)
    # No machine runs the learner now, so home has it all.
    ((name, ((wanted,),), replied),) = far.source.asked
    assert (name, wanted.name) == ("observations", (1, 6))
    replied([packed(observation_fields.only(far.slot, observation_fields.observation_fields(far.program)))], None)
    far.pass_time(0.0)
    assert far.pushed() == [0, 0, 1, 0]
    assert (far.table.arrays["obs"][far.table.index(2, 0)] == 5).all()
    assert far.wiring.counters.get(RELAY, "lost") == 0


def test_a_rollout_whose_machine_is_lost_before_it_was_fetched_counts_nowhere(far: Far) -> None:
    far.collect()
    ((_, _, replied),) = far.target.asked
    far.pass_time(relays.SILENCE_S - 1.0)
    far.target.answer()
    far.pass_time(2.0)
    assert far.relay.lost() == {far.source}
    # The learner's machine had it all the same, or has not heard of the loss.
    replied([True], None)
    far.pass_time(0.0)
    assert far.pushed() == [0, 0, 0, 0]
    assert [ended.group for ended in far.relay.exits()] == ["env.2"]


class Asking:
    """A host with an environment node and a policy node, whose ends are made in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[tuple[str, int]] = []
        monkeypatch.setattr(hosts, "Processes", lambda: self)
        monkeypatch.setattr(hosts, "WITHDRAW_S", 0.0)
        self.program = host_program(asking_program())
        self.host = hosts.Host(self.program, [])
        for group, life in (("env.0", 1), ("policy.0", 2)):
            asyncio.run(self.begin(group, life))
        self.asker, self.answerer = self.asking(1), self.answering(2)

    def start(self, segment: object, spec: WorkerSpec, threads: int, imports: object) -> None:
        self.started += spec.lives.items()

    def running(self) -> list[str]:
        return []

    async def begin(self, group: str, life: int) -> None:
        await self.host.start(group, Task(self.program.node(group), life, (), 1, ()))

    def ports(self, name: str, life: int) -> NodePorts:
        return NodePorts(self.host._wiring, name, name, life, edges=self.program.node(name).edges)

    def asking(self, life: int) -> Any:
        """What a life of the environment node asks with."""
        return self.ports("env.0", life).policy("act", 0, 2)

    def answering(self, life: int) -> Any:
        """What a life of the policy node answers with."""
        return self.ports("policy.0", life).questions("act")


def test_what_is_asked_and_answered_on_a_host_is_in_the_askers_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Asking(monkeypatch)
    other = run.ports("env.1", 7)
    arrays = other.stream_writer("rollouts").slot(0)
    asker = other.policy("act", 2, 2)
    asker.ask(asker.bind(arrays), 3, 50)
    (question,) = run.answerer.take()
    assert (question.asker, question.slot, question.row, question.first_lane) == (1, 0, 3, 2)
    run.answerer.rows(1)["action"][0, 3] = 1
    assert arrays["action"][3].tolist() == [1, 1]
    assert not run.answerer.rows(0)["action"].any()


def test_a_policy_node_that_begins_again_on_a_host_is_asked_again_what_it_was_answering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Asking(monkeypatch)
    run.asker.ask(0, 3, 50)
    begun = run.answerer.take()
    assert len(begun) == 1
    asyncio.run(run.begin("policy.0", 3))
    assert run.answering(3).take() == begun
    assert run.started[-1] == ("policy.0", 3)


@pytest.mark.parametrize("dies_too", [False, True], ids=["it answers", "it dies, too"])
def test_an_environment_node_begins_again_on_a_host_once_nobody_writes_for_the_dead_one(
    monkeypatch: pytest.MonkeyPatch, dies_too: bool
) -> None:
    run = Asking(monkeypatch)
    run.asker.ask(0, 3, 50)
    (question,) = run.answerer.take()

    async def go_on() -> None:
        begins = asyncio.ensure_future(run.begin("env.0", 4))
        for _ in range(5):
            await asyncio.sleep(0)
        assert ("env.0", 4) not in run.started
        # Home stops that life, which never ran, and starts another.
        await run.host.stop("env.0", 4)
        again = asyncio.ensure_future(run.begin("env.0", 5))
        for _ in range(5):
            await asyncio.sleep(0)
        assert run.started == [("env.0", 1), ("policy.0", 2)]
        if dies_too:
            await run.begin("policy.0", 6)
        else:
            run.answerer.answer(question.asker, 0)
        await begins
        await again

    asyncio.run(go_on())
    assert [life for name, life in run.started if name == "env.0"] == [1, 5]
    # The question of the dead life is answered or withdrawn, and the next life may ask.
    asker, answerer = run.asking(5), run.answering(6 if dies_too else 2)
    assert answerer.take() == []
    asker.ask(0, 0, 60)
    assert [found.step for found in answerer.take()] == [60]


@pytest.mark.parametrize("comes_first", ["the publication", "the slot"])
def test_a_slot_that_needs_a_publication_is_free_once_both_have_come(
    monkeypatch: pytest.MonkeyPatch, comes_first: str
) -> None:
    run = Asking(monkeypatch)
    filling = run.ports("env.0", 1).stream_writer("rollouts")
    memory = run.host._streams["env.0"]

    def taken(sequence: int) -> int | None:
        """A slot that is filled, and that travels."""
        slot = filling.claim(sequence)
        if slot is not None:
            filling.push(slot)
            assert memory.take(hosts.OWNER) == slot
        return slot

    board = run.host._boards["policy"]
    arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}

    async def publish(number: int) -> None:
        await run.host.publish("policy", Publication(number, 5, packed(arrays)), None)

    asyncio.run(publish(1))
    slot = taken(0)
    assert slot is not None
    assert taken(1) is None
    if comes_first == "the publication":
        asyncio.run(publish(3))
        asyncio.run(run.host.release([FreeSlot("env.0", 1, slot, 2)]))
    else:
        asyncio.run(run.host.release([FreeSlot("env.0", 1, slot, 2)]))
        assert taken(1) is None
        asyncio.run(publish(2))
    assert taken(1) == slot
    # It needs no publication this time.
    asyncio.run(run.host.release([FreeSlot("env.0", 1, slot)]))
    assert taken(2) == slot


def test_a_slot_that_waits_for_a_publication_is_not_freed_for_a_later_life(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Asking(monkeypatch)
    asyncio.run(run.host.release([FreeSlot("env.0", 1, 0, 2)]))
    asyncio.run(run.begin("env.0", 4))
    filling = run.ports("env.0", 4).stream_writer("rollouts")
    slot = filling.claim(0)
    assert slot is not None
    filling.push(slot)
    board = run.host._boards["policy"]
    arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}
    asyncio.run(run.host.publish("policy", Publication(2, 5, packed(arrays)), None))
    # It is still there for home.
    assert run.host._streams["env.0"].take(hosts.OWNER) == slot


def test_the_question_of_an_environment_node_that_leaves_its_host_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Asking(monkeypatch)
    run.asker.ask(0, 3, 50)
    asyncio.run(run.host.stop("env.0", 1))
    assert run.answerer.take() == []
