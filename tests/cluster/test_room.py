"""A run begins once the cluster has room for it. There is none here."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster import room
from penstock.errors import ResourceError
from penstock.processes import machine
from penstock.processes.machine import check_machine, shared_memory
from tests.cluster.handing import sharded_program, spread_program


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
