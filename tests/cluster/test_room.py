"""A run begins once the cluster has room for it. There is none here."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest

from penstock.cluster import room
from penstock.cluster.places import Offer
from penstock.errors import ConfigError, ResourceError
from penstock.processes import machine
from penstock.processes.machine import check_machine, shared_memory
from tests.cluster.handing import sharded_program, spread_program
from tests.cluster.test_places import program


def test_one_machine_needs_the_memory_of_all_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    program = sharded_program(capacity=8_000_000, table_on="learners")
    free = shared_memory(program) * 3 // 2
    monkeypatch.setattr(machine, "available_memory", lambda: free)
    check_machine(program, len(program.groups))
    monkeypatch.setattr(room, "joined", lambda address, modules: contextlib.nullcontext())
    monkeypatch.setattr(room, "_wait_for_room", lambda program: None)
    monkeypatch.setattr(room, "ask_deputies", lambda folder, quiet: None)
    monkeypatch.setattr(room, "alone", lambda _: False)
    with room.with_room(program) as alone:
        assert not alone
    monkeypatch.setattr(room, "alone", lambda _: True)
    refused = pytest.raises(ResourceError, match=r"^this run needs at least .* a replay table of --capacity")
    with refused, room.with_room(program):
        pass
    free = 4 * free
    with room.with_room(program) as alone:
        assert alone


def test_a_run_is_asked_for_once_there_is_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def nothing(address: object, modules: object) -> Iterator[None]:
        calls.append("joined")
        yield

    monkeypatch.setattr(room, "joined", contextlib.contextmanager(nothing))
    monkeypatch.setattr(room, "_wait_for_room", lambda program: calls.append("room"))
    monkeypatch.setattr(room, "ask_deputies", lambda folder, quiet: calls.append((folder.path, quiet)))
    monkeypatch.setattr(room, "alone", lambda program: False)
    with room.with_room(spread_program()):
        calls.append("begins")
    assert calls == ["joined", "room", (Path("run"), True), "begins"]


class Claims:
    """Notes what Ray is asked for, and what it is to keep on the launcher's machine."""

    asked: list[tuple[str, Mapping[str, float]]]
    elsewhere: list[tuple[str, Mapping[str, float]]]
    kept: list[tuple[str, Mapping[str, float]]]

    def __enter__(self) -> Self:
        Claims.asked, Claims.elsewhere, Claims.kept = [], [], []
        return self

    def __exit__(self, *_: object) -> None: ...

    def take(self, group: str, machine: object, asked: Mapping[str, float]) -> None:
        assert machine is None
        assert not Claims.asked, "what is asked for on any machine would take its room"
        Claims.kept.append((group, asked))

    def ask(self, group: str, asked: Mapping[str, float]) -> None:
        Claims.asked.append((group, asked))

    def ask_elsewhere(self, group: str, asked: Mapping[str, float]) -> None:
        Claims.elsewhere.append((group, asked))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[Offer]]:
    """What the cluster has at each look from now on. At the end of the list it stays as it is."""
    found: list[list[Offer]] = []
    monkeypatch.setattr(room, "Claims", Claims)
    monkeypatch.setattr(room, "LOOK_S", 0.0)
    monkeypatch.setattr(room, "own_address", lambda: "10.0.0.1")
    monkeypatch.setattr(room, "offers", lambda program: found.pop(0) if len(found) > 1 else found[0])
    monkeypatch.setattr(room, "alone", lambda program: len(found[0]) == 1)
    return found


HOME = Offer("the launcher's machine", {"cpu": 2, "gpu": 1})
GPU, PLAIN = Offer("machine b", {"cpu": 2, "gpu": 1}), Offer("machine c", {"cpu": 4})
BOTH = "env: {cpu: 1}, learner: {gpu: 1}"


def test_a_run_with_a_minimum_waits_for_room_for_its_learners(seen: list[list[Offer]]) -> None:
    seen += [[HOME], [HOME, PLAIN], [HOME, PLAIN, GPU]]
    room._wait_for_room(program(BOTH, min_workers=2))
    assert len(seen) == 1
    assert Claims.kept == [("learner", {"gpu": 1})]
    assert Claims.asked == [("learner.1", {"gpu": 1}), *((f"env.{number}", {"cpu": 1}) for number in range(4))]


def test_learners_of_a_table_do_not_ask_for_the_second_gpu_of_the_launchers_machine(seen: list[list[Offer]]) -> None:
    """Ray would grant it there at once, and start no machine."""
    two = HOME._replace(resources={"cpu": 2, "gpu": 2})
    seen += [[two, PLAIN], [two, PLAIN, GPU]]
    room._wait_for_room(sharded_program(resources=BOTH, min_workers=2))
    assert len(seen) == 1
    assert Claims.kept == [("learner", {"gpu": 1})]
    assert Claims.elsewhere == [("learner.1", {"gpu": 1})]
    assert Claims.asked == [(f"env.{number}", {"cpu": 1}) for number in range(2)]


def test_learners_that_fit_on_the_launchers_machine_wait_for_no_other(seen: list[list[Offer]]) -> None:
    seen.append([HOME._replace(resources={"cpu": 2, "gpu": 2})])
    room._wait_for_room(program(BOTH, min_workers=2))
    assert (Claims.kept, Claims.asked) == ([], [])


def test_learners_that_ask_for_nothing_are_not_asked_for(seen: list[list[Offer]]) -> None:
    seen += [[HOME], [HOME, PLAIN]]
    room._wait_for_room(program("env: {cpu: 1}", min_workers=4))
    assert Claims.asked == [(f"env.{number}", {"cpu": 1}) for number in range(4)]
    assert Claims.kept == [("learner", {})]


def test_without_a_minimum_a_run_with_too_little_room_is_refused_at_once(seen: list[list[Offer]]) -> None:
    seen += [[HOME, PLAIN], [HOME, PLAIN, GPU]]
    with pytest.raises(ConfigError, match=r"no room for learner\.1: add a machine first, or give --min_workers"):
        room._wait_for_room(program(BOTH))
    assert Claims.asked == []


def test_a_run_waits_only_so_long(seen: list[list[Offer]], monkeypatch: pytest.MonkeyPatch) -> None:
    seen.append([HOME, PLAIN])
    monkeypatch.setattr(room, "MACHINES_S", 0.01)
    with pytest.raises(ConfigError, match=r"there is no room for learner\.1; the cluster has"):
        room._wait_for_room(program(BOTH, min_workers=2))
