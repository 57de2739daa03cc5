"""What home publishes reaches a host once: also a version that is published again with other values."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import ray

from penstock.cluster import objects, publications
from penstock.cluster.cut import with_relay
from penstock.cluster.messages import Publication
from penstock.cluster.publications import Loss
from penstock.memory import table_pages
from penstock.memory.board import Board
from penstock.types import Array, Arrays
from tests.cluster.handing import kept, sharded_program, sharing_program, spread_program, wired

HOST: Any = object()
OTHER: Any = object()
MARK = 1000


class Home(NamedTuple):
    """What a run publishes, and its board ``parameters``."""

    publications: publications.Publications
    parameters: Board


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Home:
    """Of a run with two learners that hand their gradients on."""
    monkeypatch.setattr(publications, "as_object", lambda content: content)
    monkeypatch.setattr(publications, "put_again", lambda held: held)
    program = with_relay(spread_program())
    wiring = wired(program)
    return Home(publications.Publications(program, wiring, kept), wiring.board("parameters"))


def test_what_is_settled_without_a_step_is_published_too(home: Home) -> None:
    """A gradient that is too old leaves the version as it is. Its learner waits until it is settled on the host."""
    publish(home.parameters, settled=1)
    assert sent(home.publications) == [(7, 1)]
    assert sent(home.publications) == []
    publish(home.parameters, settled=2)
    # One publication at a time is on its way to a host.
    assert sent(home.publications) == []
    home.publications.arrived(HOST, "parameters", 1)
    assert sent(home.publications) == [(7, 2)]
    home.publications.arrived(HOST, "parameters", 2)
    assert sent(home.publications) == []


def test_once_a_host_is_lost_others_get_objects_that_it_has_no_copy_of(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would ask the lost machine for its copy, and wait."""
    publish(home.parameters, settled=1)
    assert sent(home.publications) == [(7, 1)]
    monkeypatch.setattr(publications, "put_again", marked)
    assert home.publications.lose(HOST) == Loss(rows=0, no_room=False)
    ((host, _, publication, _),) = home.publications.due({"learner.1": OTHER})
    assert (host, publication.version) == (OTHER, MARK)


def test_what_is_under_way_to_others_when_a_host_is_lost_is_sent_anew(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray may be asking the lost machine for it already."""
    publish(home.parameters, settled=1)
    for host in (HOST, OTHER):
        assert len(list(home.publications.due({"learner.1": host}))) == 1
    monkeypatch.setattr(publications, "put_again", marked)
    home.publications.lose(HOST)
    ((host, _, publication, _),) = home.publications.due({"learner.1": OTHER})
    assert (host, publication.version) == (OTHER, MARK)
    # The host has answered to one of the two. A newer one is due, and the other answer does not count for it.
    publish(home.parameters, settled=2)
    home.publications.arrived(OTHER, "parameters", 1)
    ((_, _, newer, _),) = home.publications.due({"learner.1": OTHER})
    assert (newer.version, newer.number) == (7, 2)
    publish(home.parameters, settled=3)
    home.publications.arrived(OTHER, "parameters", 1)
    assert list(home.publications.due({"learner.1": OTHER})) == []


def test_rollouts_that_are_under_way_when_a_host_is_lost_are_sent_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "as_object", lambda content: content)
    program = with_relay(sharing_program())
    wiring = wired(program)
    of_home = publications.Publications(program, wiring, kept)
    goals = wiring.board("goals")
    arrays: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in goals.specs}
    goals.publish(arrays, 1)
    both = {"learner.1": OTHER, "learner.2": HOST}
    assert all(rollouts is not None for _, board, _, rollouts in of_home.due(both) if board == "goals")
    anew: list[object] = []

    def put_again(held: object) -> object:
        anew.append(held)
        return held

    monkeypatch.setattr(publications, "put_again", put_again)
    of_home.lose(HOST)
    # The goal, and its rollouts.
    assert [type(held) for held in anew] == [Publication, dict]
    assert [rollouts for _, board, _, rollouts in of_home.due({"learner.1": OTHER}) if board == "goals"] == anew[1:]


def test_rollouts_that_a_host_got_are_put_anew_if_it_is_lost_after_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "as_object", lambda content: content)
    program = with_relay(sharing_program())
    wiring = wired(program)
    of_home = publications.Publications(program, wiring, kept)
    publish(wiring.board("goals"))
    ((_, board, goal, rollouts),) = of_home.due({"learner.1": OTHER})
    assert rollouts is not None
    of_home.arrived(OTHER, board, goal.number)
    # The policy is under way to both hosts when the first one is lost. It names no batch.
    publish(wiring.board("policy"))
    assert len(list(of_home.due({"learner.1": OTHER, "env.1": OTHER, "env.2": HOST}))) == 2
    anew: list[object] = []

    def put_again(held: object) -> object:
        anew.append(held)
        return held

    monkeypatch.setattr(publications, "put_again", put_again)
    of_home.lose(HOST)
    ((_, board, policy, _),) = of_home.due({"learner.1": OTHER, "env.1": OTHER})
    assert (board, anew) == ("policy", [policy])
    of_home.lose(OTHER)
    assert len(anew) == 4
    assert any(held is rollouts for held in anew)


def test_rollouts_that_a_lost_host_had_are_sent_anew_with_a_goal_that_it_had_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publications, "as_object", lambda content: content)
    monkeypatch.setattr(publications, "put_again", lambda held: dict(held) if isinstance(held, dict) else held)
    program = with_relay(sharing_program())
    wiring = wired(program)
    of_home = publications.Publications(program, wiring, kept)
    goals = wiring.board("goals")
    publish(goals)
    ((*_, rollouts),) = of_home.due({"learner.2": HOST})
    # The same batch once more, for a learner that came later.
    publish(goals)
    ((*_, goal, under_way),) = of_home.due({"learner.1": OTHER})
    assert (goal.number, under_way is rollouts) == (2, True)
    of_home.lose(HOST)
    ((*_, goal, anew),) = of_home.due({"learner.1": OTHER})
    assert (goal.number, anew is None, anew is rollouts) == (2, False, False)


def test_what_a_lost_host_was_not_sent_is_not_put_anew(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(home.parameters, settled=1)
    assert sent(home.publications) == [(7, 1)]
    monkeypatch.setattr(publications, "put_again", lambda held: pytest.fail("it had no copy"))
    assert home.publications.lose(OTHER) == Loss(rows=0, no_room=False)
    assert sent(home.publications) == []
    # Nor an earlier publication, of which nobody needs a copy any more.
    publish(home.parameters, settled=2)
    list(home.publications.due({"learner.1": OTHER}))
    assert home.publications.lose(HOST) == Loss(rows=0, no_room=False)


def test_a_full_object_store_does_not_end_a_run_that_loses_a_host(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(home.parameters, settled=1)
    assert sent(home.publications) == [(7, 1)]

    def full(content: object) -> None:
        raise ray.exceptions.ObjectStoreFullError("no room for 10 MB")

    monkeypatch.setattr(ray, "get", lambda held: held)
    monkeypatch.setattr(ray, "put", full)
    monkeypatch.setattr(publications, "put_again", objects.put_again)
    assert home.publications.lose(HOST) == Loss(rows=0, no_room=True)
    # The old object goes on being sent.
    ((_, _, publication, _),) = home.publications.due({"learner.1": OTHER})
    assert publication.version == 7


def test_a_publication_that_finds_no_room_is_due_once_there_is_some(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No host is lost. What is published meanwhile takes its place."""
    store = Store(monkeypatch)
    store.room = 0
    publish(home.parameters, settled=1)
    for _ in range(2):
        assert sent(home.publications) == []
        assert home.publications.no_room
    publish(home.parameters, settled=2)
    store.room = 1
    assert sent(home.publications) == [(7, 2)]
    assert not home.publications.no_room
    assert store.room == 0


@pytest.mark.parametrize("room", [0, 1], ids=["for neither", "for the goal alone"])
def test_a_goal_is_not_sent_without_its_rollouts_although_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    store = Store(monkeypatch)
    program = with_relay(sharing_program())
    wiring = wired(program)
    of_home = publications.Publications(program, wiring, kept)
    publish(wiring.board("goals"))
    store.room = room
    assert list(of_home.due({"learner.1": HOST, "learner.2": OTHER})) == []
    assert of_home.no_room
    store.room = 2
    found = list(of_home.due({"learner.1": HOST, "learner.2": OTHER}))
    assert {host for host, _, _, _ in found} == {HOST, OTHER}
    assert [(board, goal.number) for _, board, goal, _ in found] == [("goals", 1)] * 2
    assert all(rollouts is not None for _, _, _, rollouts in found)
    assert not of_home.no_room


class Store:
    """An object store with room for so many objects more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 0
        monkeypatch.setattr(ray, "put", self.put)
        monkeypatch.setattr(publications, "as_object", objects.as_object)

    def put(self, content: object) -> object:
        if not self.room:
            raise ray.exceptions.ObjectStoreFullError("no room for 10 MB")
        self.room -= 1
        return content


def marked(held: Publication) -> Publication:
    """Another object with the same content. Here it is known by its version."""
    return held._replace(version=MARK)


def publish(board: Board, **values: int) -> None:
    arrays: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}
    for name, value in values.items():
        arrays[name][...] = value
    board.publish(arrays, 7)


def sent(of_home: publications.Publications) -> list[tuple[int, int]]:
    """Version, and number of the publication, of each that is due to a host with one learner."""
    due: list[Publication] = [publication for _, _, publication, _ in of_home.due({"learner.1": HOST})]
    return [(publication.version, publication.number) for publication in due]


@pytest.mark.parametrize(("table_on", "lost"), [("learners", 3), ("launcher", 0)])
def test_rows_that_a_host_alone_has_are_let_go_of_once_committed(monkeypatch, table_on: str, lost: int) -> None:
    monkeypatch.setattr(publications, "as_object", lambda content: content)
    monkeypatch.setattr(publications, "put_again", lambda held: held)
    monkeypatch.setattr(table_pages, "PART_BYTES", 1)
    program = with_relay(sharded_program(table_on=table_on))
    wiring = wired(program)
    given: list[Array] = []
    of_home = publications.Publications(program, wiring, given.append)
    table = wiring.table_memory("rollouts")
    for writer in (0, 1):
        for sequence in range(4):
            table.claim(writer, sequence)
            table.push(writer, sequence)
    goals = wiring.board("goals")
    told: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in goals.specs}
    goals.publish({**told, "taken": np.full(2, 4)}, 1)
    ((_, board, publication, _),) = of_home.due({"learner.1": HOST})
    assert [(slot.writer, slot.sequence) for slot in publication.news.slots] == [(1, number) for number in range(4)]
    record = wiring.record("learner")
    record.begin()["taken"][...] = 3
    record.commit(1)
    of_home.let_go()
    assert given == []
    of_home.arrived(HOST, board, publication.number)
    # The record is read once for each commit.
    monkeypatch.setattr(record, "copy", lambda: pytest.fail("it was read already"))
    of_home.let_go()
    assert bool(given) == bool(lost)
    steps, lanes = 8, 2
    assert of_home.lose(HOST).rows == lost * steps * lanes
    assert (table.first(0), table.first(1)) == (0, lost)
