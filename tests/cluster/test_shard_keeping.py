"""The shards of a table are written before their checkpoint, and the checkpointer hears which files there are."""

import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.cluster import shard_keeping
from penstock.cluster.cut import with_relay
from penstock.cluster.shard_keeping import ShardKeeping, with_shard_boards
from penstock.replay.contents import TABLE_LIMIT
from penstock.saved_runs.shard_marks import ASKED, KEPT, ShardName, kept_arrays
from penstock.wiring.ports import NodePorts
from tests.cluster.handing import sharded_program, wired


class Files:
    """Notes what is to be written, and lets time pass. Shard 1 cannot be written any more once its disk is full."""

    def __init__(self) -> None:
        self.names: list[ShardName | None] = [None, None]
        self.nbytes = 1000
        self.written: list[tuple[int, list[int]]] = []
        self.limit_s = 0.0
        self.now = 100.0
        self.lasts, self.full, self.fails = 0.0, False, False
        self.may_end: threading.Event | None = None

    def write(
        self, name: ShardName, taken: list[int], *_: object, rest: object, limit_s: float, over: object
    ) -> list[str]:
        self.written.append((name.update, taken))
        self.limit_s = limit_s
        if self.may_end is not None:
            self.may_end.wait()
        self.now += self.lasts
        if self.fails:
            raise ValueError("a defect")
        self.names = [name, self.names[1] if self.full else name]
        return ["shard 1 of the replay table is not kept: the disk is full"] if self.full else []


class Home:
    """The two boards of home, between the checkpointer and the thread of the launcher."""

    def __init__(self, deaths: Path, nbytes: int = 1000) -> None:
        program = with_shard_boards(with_relay(sharded_program(table_on="learners")))
        self.wiring, self.files, self.deaths = wired(program), Files(), deaths
        self.files.nbytes = nbytes
        doubles: tuple[Any, ...] = (self.files, self.wiring, None, None, deaths)
        self.keeping = ShardKeeping(*doubles, stall_limit_s=300.0)
        self.ports = NodePorts(self.wiring, "checkpointer", program.node("checkpointer").group, 1, ())
        self.asked = 0

    def ask(self, update: int) -> None:
        self.asked += 1
        numbers = {"update": update, "mark": self.asked, "taken": [update, update + 1]}
        arrays = {name: np.array(value, np.int64) for name, value in numbers.items()}
        self.ports.board_writer(ASKED).publish(arrays, update)

    def turn(self) -> None:
        """One turn of the thread, and one more once a large table is written."""
        self.keeping.turn()
        if self.keeping._writer is not None:
            self.keeping._writer.join()
        self.keeping.turn()

    def shown(self) -> dict[str, Any]:
        into = kept_arrays([None, None], 0)
        self.ports.board_reader(KEPT).read(into)
        return {name: values.tolist() for name, values in into.items()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path / "deaths.log")
    monkeypatch.setattr(shard_keeping, "time", SimpleNamespace(monotonic=lambda: made.files.now))
    return made


def test_each_question_is_answered_once_with_the_files_that_were_written_for_it(home: Home) -> None:
    home.keeping.turn()
    assert home.files.written == []
    home.ask(4)
    home.keeping.turn()
    home.keeping.turn()
    assert home.files.written == [(4, [4, 5])]
    assert home.shown() == {"answered": 1, "updates": [4, 4], "marks": [1, 1]}
    # Another life of the checkpointer asks once more.
    home.ask(4)
    home.keeping.turn()
    assert home.shown() == {"answered": 2, "updates": [4, 4], "marks": [2, 2]}


def test_a_shard_that_cannot_be_written_keeps_its_file_and_the_run_says_so_once(home: Home) -> None:
    home.ask(4)
    home.keeping.turn()
    home.files.full = True
    for update in (6, 8):
        home.ask(update)
        home.keeping.turn()
    assert home.shown() == {"answered": 3, "updates": [8, 4], "marks": [3, 1]}
    assert home.deaths.read_text() == "shard 1 of the replay table is not kept: the disk is full\n\n"


def test_the_checkpointer_is_answered_whatever_fails(home: Home) -> None:
    home.files.fails = True
    home.ask(4)
    with pytest.raises(ValueError, match="a defect"):
        home.keeping.turn()
    assert home.shown() == {"answered": 1, "updates": [-1, -1], "marks": [0, 0]}
    home.files.fails = False
    home.ask(6)
    home.keeping.turn()
    assert home.shown() == {"answered": 2, "updates": [6, 6], "marks": [2, 2]}


@pytest.mark.parametrize(("nbytes", "expected"), [(TABLE_LIMIT, [4, 6, 8, 10]), (TABLE_LIMIT + 1, [4, 10])])
def test_a_large_table_is_written_for_at_most_a_tenth_of_the_time(home: Home, nbytes: int, expected: list[int]) -> None:
    home.files.nbytes, home.files.lasts = nbytes, 10.0
    for update, now in ((4, 100.0), (6, 150.0), (8, 199.0), (10, 200.5)):
        home.files.now = max(home.files.now, now)
        home.ask(update)
        home.turn()
    assert [update for update, _ in home.files.written] == expected
    assert home.shown()["answered"] == 4


def test_no_checkpoint_waits_for_a_large_table_and_the_first_one_behind_its_files_names_them(home: Home) -> None:
    home.files.nbytes, home.files.may_end = TABLE_LIMIT + 1, threading.Event()
    for update in (4, 6):
        home.ask(update)
        home.keeping.turn()
    assert home.shown() == {"answered": 2, "updates": [-1, -1], "marks": [0, 0]}
    home.files.may_end.set()
    home.turn()
    assert home.shown() == {"answered": 2, "updates": [4, 4], "marks": [1, 1]}
    assert home.files.written == [(4, [4, 5])]


@pytest.mark.parametrize(("nbytes", "expected"), [(TABLE_LIMIT, 90.0), (TABLE_LIMIT + 1, math.inf)])
def test_a_disk_that_hangs_holds_up_a_checkpoint_for_less_than_the_stall_timeout_and_a_large_table_has_time(
    tmp_path: Path, nbytes: int, expected: float
) -> None:
    home = Home(tmp_path / "deaths.log", nbytes)
    home.ask(4)
    home.turn()
    assert home.files.limit_s == expected


def test_a_shard_that_is_not_written_because_the_run_ends_is_not_told_of(home: Home) -> None:
    home.files.full = True
    home.keeping._over.set()
    home.ask(4)
    home.keeping.turn()
    assert home.files.written == [(4, [4, 5])]
    assert not home.deaths.exists()


def test_a_resumed_run_names_the_files_that_it_has_found_from_the_beginning(home: Home) -> None:
    home.files.names = [ShardName(2, 7), None]
    with home.keeping:
        assert home.shown() == {"answered": 0, "updates": [2, -1], "marks": [7, 0]}


def test_only_the_checkpointer_of_a_table_that_lies_with_its_learners_asks() -> None:
    apart = with_shard_boards(with_relay(sharded_program(table_on="learners")))
    assert apart.node("checkpointer").settings.shards == 2
    whole = with_relay(sharded_program())
    assert with_shard_boards(whole) is whole
