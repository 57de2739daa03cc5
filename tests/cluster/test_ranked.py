"""What learners on hosts rank counts at home and on all hosts: for the rows that it was computed for, and no others.

Without a cluster and without a process. ``test_relay.py`` has the relay in between.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.algorithm.first_state import first_state
from penstock.cluster import publications
from penstock.cluster.cut import host_program, with_relay
from penstock.cluster.hosted_table import HostedTable
from penstock.cluster.messages import FilledSlot
from penstock.cluster.movable import ranking
from penstock.cluster.parcels import packed
from penstock.cluster.publications import Publications
from penstock.cluster.rings import News, RowRanks
from penstock.cluster.spread_processes import SpreadProcesses
from penstock.cluster.stand_in import FollowerStandIn, stand_in
from penstock.nodes.learner.goals import TurnGoal
from penstock.nodes.learner.steps import GradientSteps
from penstock.program.graph import Program, Stream
from penstock.types import Array, Arrays
from penstock.wiring.ports import NodePorts
from tests.cluster.handing import kept, ranking_program, wired
from tests.cluster.test_seats import Cluster, Here, Machine, Relay

NAME, OTHER = "learner.1", "learner.2"
OWNER, LIFE = 99, 7
FIRST = 2.0
"""The first priority of each row."""


class Side:
    """The memory of home, or of a host."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.wiring = wired(program)
        self.table = self.wiring.table_memory("rollouts")
        found = self.wiring.trees("rollouts")
        assert found is not None
        self.trees = found
        self.height, self.lanes = map(int, self.table.arrays["valid"].shape[1:])

    def row(self, writer: int, sequence: int, step: int) -> int:
        """The flat row of lane 0."""
        return (self.table.index(writer, sequence) * self.height + step) * self.lanes

    def write(self, sequence: int) -> None:
        """Fill one slot of each writer. The row behind the last step is never sampled."""
        for writer in range(self.table.writers):
            index = self.table.claim(writer, sequence)
            slot, random = self.table.slot(index), np.random.default_rng([writer, sequence])
            slot["obs"][...] = random.normal(size=slot["obs"].shape)
            slot["action"][...] = random.integers(0, 2, slot["action"].shape)
            slot["reward"][...], slot["valid"][...], slot["continues"][...] = 1.0, True, sequence > 0
            first = np.full((self.height, self.lanes), FIRST)
            first[-1] = 0.0
            self.trees.set(self.row(writer, sequence, 0), sequence, first.reshape(-1))
            self.table.push(writer, sequence)

    def priorities(self) -> Array:
        return self.trees.read(np.arange(self.table.arrays["valid"].size))

    def begin(self) -> None:
        """Publish the first parameters."""
        updater = self.program.node(NAME).settings.updater
        board = self.wiring.board("parameters")
        zeros: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}
        state = first_state(self.program.node(NAME).settings.initial, updater.spec, updater.spaces, updater.config, 3)
        board.publish({name: state.get(name, values) for name, values in zeros.items()}, 0)

    def step(self) -> FilledSlot:
        """A gradient step of the learner: what the host tells home of it."""
        node = self.program.node(NAME)
        steps = GradientSteps(node.settings, NodePorts(self.wiring, NAME, NAME, LIFE, edges=node.edges))
        steps.start(steps.updater.state())
        taken = tuple(self.table.written(writer) for writer in range(self.table.writers))
        for _ in steps.until(TurnGoal(steps.done + 1, taken, 0.0)):
            pass
        stream = self.wiring.stream(f"gradients.{NAME}")
        index = stream.take(OWNER)
        assert index is not None
        return FilledSlot(NAME, LIFE, index, stream.sequence(index), packed(stream.slot(index)), {}, {})


class Home(Side):
    """Home, with a stand-in of one learner, and two hosts."""

    def __init__(self) -> None:
        super().__init__(with_relay(ranking_program()))
        self.publications = Publications(self.program, self.wiring, kept)
        self.hosts: dict[Any, Side] = {name: Side(host_program(ranking_program())) for name in ("a", "b")}
        self.placed: dict[str, Any] = {NAME: "a", OTHER: "b"}

    def stand_in(self) -> FollowerStandIn:
        found = stand_in(self.program, self.wiring, self.program.node(NAME), LIFE, ())
        assert isinstance(found, FollowerStandIn)
        return found

    def feed(self, *reached: str) -> dict[Any, News]:
        """What is due to each host. It comes to those that are reached."""
        due = dict(self.publications.feeds(self.placed))
        for name in reached:
            if name in due:
                self.arrive(name, due[name])
        return due

    def arrive(self, name: str, news: News) -> None:
        host: Any = name
        assert HostedTable(self.hosts[name].program, self.hosts[name].wiring).take(news)
        self.publications.fed(host)

    def filled(self, ranked: RowRanks, step: int = 1) -> FilledSlot:
        """Gradients on a minibatch of eight rows: these, the last one again and again."""
        edge = self.program.edge("gradients")
        assert isinstance(edge, Stream)
        slot: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in edge.arrays}
        for name, values in zip(("row", "stamp", "priority"), ranked, strict=True):
            slot[name][...] = values[np.minimum(np.arange(8), len(values) - 1)]
        return FilledSlot(NAME, LIFE, 0, 2 * step, packed(slot), {}, {})


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(publications, "put_again", lambda held: held)
    return Home()


def test_all_machines_end_with_the_priorities_that_a_learner_on_one_host_has_given(home: Home) -> None:
    for sequence in range(2):
        home.write(sequence)
    home.feed("a", "b")
    here, there = home.hosts["a"], home.hosts["b"]
    for host in (here, there):
        assert np.array_equal(host.priorities(), home.priorities())
    here.begin()
    before = home.priorities()
    filled = here.step()
    changed = np.flatnonzero(here.priorities() != before)
    # At most the eight rows of the minibatch. None of their errors is as large as their first priority.
    assert 0 < len(changed) <= 8
    assert np.array_equal(home.priorities(), before)
    delivered = home.stand_in()
    assert delivered.deliver(filled)
    assert np.array_equal(home.priorities(), here.priorities())
    home.publications.ranked(delivered.ranked())
    assert delivered.ranked() == []
    # Nothing but priorities is under way, and to the learner's own host, too.
    due = home.feed("a", "b")
    assert [(len(news.slots), news.begins, len(news.ranked)) for news in due.values()] == [(0, {}, 1)] * 2
    for host in (here, there):
        assert np.array_equal(host.priorities(), home.priorities())
    assert home.trees.shard(0).total() == pytest.approx(home.priorities().sum())
    assert there.trees.shard(0).total() == home.trees.shard(0).total()
    assert home.feed("a", "b") == {}


def test_a_row_that_was_overwritten_at_home_keeps_the_priority_of_its_successor(home: Home) -> None:
    home.write(0)
    home.write(1)
    rows = np.array([home.row(0, 0, 3), home.row(1, 1, 2)])
    # The rings go round while the gradients travel: another row lies where the first one was.
    for sequence in range(2, home.table.slots + 1):
        home.write(sequence)
    assert home.stand_in().deliver(home.filled(RowRanks(rows, np.array([0, 1]), np.array([5.0, 0.25]))))
    assert home.trees.read(rows).tolist() == [FIRST, 0.25]


def test_gradients_that_find_no_slot_at_home_rank_nothing_yet(home: Home) -> None:
    home.write(0)
    stream, rows = home.wiring.stream("gradients"), np.array([home.row(0, 0, 0)])
    taken = [stream.claim(OWNER, sequence) for sequence in range(100, 100 + stream.slots)]
    delivered, filled = home.stand_in(), home.filled(RowRanks(rows, np.array([0]), np.array([5.0])))
    assert not delivered.deliver(filled)
    assert (home.trees.read(rows).tolist(), delivered.ranked()) == ([FIRST], [])
    assert taken[0] is not None
    stream.push(taken[0], OWNER)
    stream.release(stream.take(OWNER), OWNER)
    assert delivered.deliver(filled)
    assert home.trees.read(rows).tolist() == [5.0]
    # The slot of its gradients may be filled anew before hosts hear of it.
    (ranked,) = delivered.ranked()
    home.wiring.stream("gradients").slot(taken[0])["priority"][...] = 0.0
    assert ranked.priorities.tolist() == [5.0] * 8


def test_hosts_hear_of_priorities_in_the_order_of_home_and_behind_the_slots_they_belong_to(home: Home) -> None:
    home.write(0)
    under_way = home.feed()
    old, new = np.array([home.row(0, 0, 1)]), np.array([home.row(1, 1, 1)])

    def rank(rows: Array, stamp: int, priority: float) -> None:
        found = RowRanks(rows, np.array([stamp]), np.array([priority]))
        home.trees.update(*found)
        home.publications.ranked([found])

    # Slots are under way to both hosts. Meanwhile two learners rank one row, and one of them ranks a newer one.
    rank(old, 0, 3.0)
    rank(old, 0, 4.0)
    home.write(1)
    rank(new, 1, 6.0)
    assert home.feed("a", "b") == {}
    for name, news in under_way.items():
        home.arrive(name, news)
        assert home.hosts[name].trees.read(old).tolist() == [FIRST]
    due = home.feed("a", "b")
    assert all([slot.sequence for slot in news.slots] == [1, 1] for news in due.values())
    for host in home.hosts.values():
        assert [float(host.trees.read(rows)[0]) for rows in (old, new)] == [4.0, 6.0]


def test_priorities_travel_in_parts_and_in_the_order_of_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write(0)
    home.feed("a", "b")
    rows = np.array([home.row(0, 0, 1)])
    given = [RowRanks(rows, np.array([0]), np.array([float(priority)])) for priority in range(3, 8)]
    monkeypatch.setattr(publications, "PART_BYTES", 2 * sum(array.nbytes for array in given[0]))
    for found in given[:4]:
        home.trees.update(*found)
        home.publications.ranked([found])
    assert [ranks.priorities.tolist() for ranks in home.feed("a")["a"].ranked] == [[3.0], [4.0]]
    # What comes meanwhile is behind what was left.
    home.trees.update(*given[4])
    home.publications.ranked(given[4:])
    seen = []
    while "a" in (due := home.feed("a")):
        seen.append([ranks.priorities.tolist() for ranks in due["a"].ranked])
    assert seen == [[[5.0], [6.0]], [[7.0]]]
    assert home.hosts["a"].trees.read(rows).tolist() == home.trees.read(rows).tolist() == [7.0]


def test_a_host_that_comes_later_gets_the_priorities_with_the_slots(home: Home) -> None:
    home.write(0)
    home.feed("a", "b")
    found = RowRanks(np.array([home.row(0, 0, 1)]), np.array([0]), np.array([3.0]))
    home.trees.update(*found)
    home.publications.ranked([found])
    home.publications.lose("b")
    home.hosts["c"], home.placed = Side(host_program(ranking_program())), {NAME: "a", OTHER: "c"}
    due = home.feed("a", "c")
    assert {name: len(news.ranked) for name, news in due.items()} == {"a": 1, "c": 0}
    for name in ("a", "c"):
        assert np.array_equal(home.hosts[name].priorities(), home.priorities())


def placing(*machines: Machine) -> tuple[SpreadProcesses, Relay, Cluster]:
    """Two learners that ask for a core each, and a home with many cores."""
    program = with_relay(ranking_program(resources="learner: {cpu: 1}"))
    assert ranking(program) == (NAME, OTHER)
    relay, cluster = Relay(), Cluster(8, *machines)
    nothing = dict.fromkeys(("take", "wait", "ask", "release"), lambda *_: None)
    claims: Any = SimpleNamespace(**nothing)
    doubles: tuple[Any, ...] = (Here(), relay, cluster, claims)
    return SpreadProcesses(program, *doubles), relay, cluster


def test_learners_that_rank_a_table_are_all_on_hosts_or_all_at_home() -> None:
    a, b, late = Machine("a", 1), Machine("b", 1), Machine("late", 1)
    spread, relay, cluster = placing(a, b)
    assert [spread._place(name) for name in (NAME, OTHER)] == [a, b]
    # Home has room, and the other host has none. No host would hear of what a learner at home ranks.
    relay.lose(a)
    assert spread._place(NAME) is b
    relay.lose(b)
    assert spread._place(NAME) is None
    # It joins between the next lives of both.
    cluster.machines.append(late)
    assert spread._place(OTHER) is None
