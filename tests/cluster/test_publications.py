"""What home publishes reaches a host once: also a version that is published again with other values."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.cluster import publications
from penstock.cluster.cut import with_relay
from penstock.cluster.messages import Publication
from penstock.memory import table_pages
from penstock.memory.board import Board
from penstock.types import Array, Arrays
from tests.cluster.handing import kept, sharded_program, spread_program, wired

HOST: Any = object()


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
    home.publications.arrived(HOST, "parameters")
    assert sent(home.publications) == [(7, 2)]
    home.publications.arrived(HOST, "parameters")
    assert sent(home.publications) == []


def test_once_a_host_is_lost_others_get_objects_that_it_has_no_copy_of(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would ask the lost machine for its copy, and wait."""
    publish(home.parameters, settled=1)
    assert sent(home.publications) == [(7, 1)]
    monkeypatch.setattr(publications, "put_again", lambda held: held._replace(number=100 + held.number))
    home.publications.lose(HOST)
    other: Any = object()
    ((host, _, publication, _),) = home.publications.due({"learner.1": other})
    assert (host, publication.number) == (other, 101)


def publish(board: Board, settled: int) -> None:
    arrays: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in board.specs}
    arrays["settled"][...] = settled
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
    of_home.arrived(HOST, board)
    # The record is read once for each commit.
    monkeypatch.setattr(record, "copy", lambda: pytest.fail("it was read already"))
    of_home.let_go()
    assert bool(given) == bool(lost)
    steps, lanes = 8, 2
    assert of_home.lose(HOST) == lost * steps * lanes
    assert (table.first(0), table.first(1)) == (0, lost)
