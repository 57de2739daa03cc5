"""CheckpointerNode: what its next life does with what the one before has left, and what it waits for."""

import contextlib
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.metrics.histograms import Histograms, Part
from penstock.metrics.report import Report
from penstock.nodes.checkpointer import CheckpointerNode, CheckpointerSettings
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.saved_runs.durable import remove_folder
from penstock.saved_runs.shard_marks import ShardName, kept_arrays
from penstock.types import Arrays


class Ports:
    """The checkpointer's end of nothing."""

    former = (1,)

    def stream_reader(self, role: str) -> None:
        return None

    def busy(self, work: str, limit_s: float) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def test_a_life_that_died_while_it_removed_a_checkpoint_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = (tmp_path / "checkpoints" / f"update-0000000{update}" for update in (5, 6))
    for path in (older, newer):
        path.mkdir(parents=True)
        (path / "state.safetensors").write_text("rows")
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_, **__: None)
        remove_folder(older)
    assert len(list(older.parent.iterdir())) == 2
    CheckpointerNode(CheckpointerSettings(tmp_path, 1, 0, {}, 1.0)).open(Ports())
    assert list(older.parent.iterdir()) == [newer]


class OneCheckpoint(Ports):
    """A stream with one checkpoint in it, and a shared object."""

    former = ()

    def __init__(self) -> None:
        self.met: deque[Histograms] = deque()
        self.waiting = 1
        counts = {"update": 3, "steps": 240, "episodes": 0, "elapsed_s": 1.5}
        flags = {"evaluation_asked": False, "passing": False}
        self.arrays: Arrays = {name: np.array(value) for name, value in {**counts, **flags}.items()}
        self.arrays["actor"] = np.arange(6, dtype=np.float32)
        self.arrays["critic"] = np.full((2, 2), np.nan, np.float32)
        self.arrays["returns"] = np.zeros(4)
        self.arrays["actions"], self.arrays["actions_count"] = np.zeros((1, 8)), np.zeros(1, np.int64)

    def stream_reader(self, role: str) -> Any:
        return self

    def shared_object(self, role: str, make: Callable[[], object]) -> object:
        return {"histograms": self.met}[role]

    def ready(self) -> int:
        return self.waiting

    def take(self) -> int:
        return 0

    def slot(self, index: int) -> Arrays:
        return self.arrays

    def release(self, index: int) -> None:
        self.waiting = 0

    def count(self, counter: str) -> None: ...


def test_the_parameters_of_a_checkpoint_are_spread_part_by_part_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for written in ("save_checkpoint", "prune_checkpoints"):
        monkeypatch.setattr(f"penstock.nodes.checkpointer.{written}", lambda *_: None)
    ports = OneCheckpoint()
    parts = (
        Part("actor/0.weight", "actor", 0, 4),
        Part("actor/0.bias", "actor", 4, 2),
        Part("critic/all", "critic", 0, 4),
    )
    node = CheckpointerNode(CheckpointerSettings(tmp_path, 1, 0, {}, 1.0, parts=parts))
    node.open(ports)
    node.step()
    (found,) = ports.met
    assert found.at == Report(3, 240, 1.5, {})
    # Nothing is said of what is not finite.
    assert {name: (part.smallest, part.largest) for name, part in found.parts.items()} == {
        "actor/0.weight": (0.0, 3.0),
        "actor/0.bias": (4.0, 5.0),
    }
    plain = OneCheckpoint()
    node = CheckpointerNode(CheckpointerSettings(tmp_path, 1, 0, {}, 1.0))
    node.open(plain)
    node.step()
    assert not plain.met


class BesideShards(OneCheckpoint):
    """Two boards: at one the checkpointer asks for files of two shards, at the other it finds them."""

    def __init__(self, *, passing: bool) -> None:
        super().__init__()
        self.arrays |= {"taken": np.array([4, 5]), "passing": np.array(passing)}
        self.asked: list[Arrays] = []
        self.files = kept_arrays([ShardName(2, 7), None], answered=0)
        self.over = False

    def board_writer(self, role: str) -> Any:
        assert role == "shards_asked"
        return SimpleNamespace(publish=lambda arrays, version: self.asked.append(arrays))

    def board_reader(self, role: str) -> Any:
        assert role == "shards_kept"
        return SimpleNamespace(read=lambda into: into.update(self.files))

    def stopping(self) -> bool:
        return self.over


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the manifest of each checkpoint says of files of shards."""
    found: list[object] = []
    monkeypatch.setattr("penstock.nodes.checkpointer.prune_checkpoints", lambda *_: None)
    monkeypatch.setattr(
        "penstock.nodes.checkpointer.save_checkpoint",
        lambda folder, arrays, facts, table: found.append(facts["shards"]),
    )
    return found


def beside_shards(tmp_path: Path, ports: BesideShards) -> CheckpointerNode:
    node = CheckpointerNode(CheckpointerSettings(tmp_path, 1, 0, {}, 1.0, shards=2))
    node.open(ports)
    assert node.ready()
    node.step()
    return node


def test_a_checkpoint_is_written_once_the_shards_are_and_names_their_files(tmp_path: Path, saved) -> None:
    ports = BesideShards(passing=False)
    node = beside_shards(tmp_path, ports)
    (asked,) = ports.asked
    assert (int(asked["update"]), asked["taken"].tolist()) == (3, [4, 5])
    assert (node.ready(), saved, ports.waiting) == (False, [], 1)
    # An answer to an earlier life.
    ports.files = kept_arrays([ShardName(2, 7), None], answered=int(asked["mark"]) - 1)
    assert not node.ready()
    ports.files = kept_arrays([ShardName(3, int(asked["mark"])), None], answered=int(asked["mark"]))
    assert node.ready()
    node.step()
    assert saved == [[[3, int(asked["mark"])], None]]
    assert (ports.waiting, node.ready(), len(ports.asked)) == (0, False, 1)


def test_a_checkpoint_that_is_handed_over_twice_keeps_the_files_that_it_names(tmp_path: Path) -> None:
    """A learner that takes over, or resumes, hands over the last one again."""
    facts = {"env": "Pendulum-v1", "algorithm": "apex", "spaces": "Box"}
    ports = BesideShards(passing=False)
    for _ in range(2):
        node = CheckpointerNode(CheckpointerSettings(tmp_path, 1, 0, facts, 1.0, shards=2))
        node.open(ports)
        ports.waiting = 1
        while ports.waiting:
            node.step()
            mark = int(ports.asked[-1]["mark"])
            ports.files = kept_arrays([ShardName(3, mark), None], answered=mark)
        (path,) = list_checkpoints(tmp_path)
        assert load_checkpoint(path).manifest["shards"] == [[3, int(ports.asked[0]["mark"])], None]
    assert len(ports.asked) == 1
    # With other gradient steps it is another checkpoint.
    ports.arrays["applied"] = np.array(7)
    node.step()
    assert len(ports.asked) == 2


def test_a_checkpoint_that_need_not_be_kept_names_the_files_that_are_there(tmp_path: Path, saved) -> None:
    ports = BesideShards(passing=True)
    beside_shards(tmp_path, ports)
    assert (saved, ports.asked) == ([[[2, 7], None]], [])


def test_the_last_checkpoint_waits_for_no_files(tmp_path: Path, saved) -> None:
    ports = BesideShards(passing=False)
    node = beside_shards(tmp_path, ports)
    ports.over = True
    assert node.ready()
    node.step()
    assert saved == [[[2, 7], None]]
    ports = BesideShards(passing=False)
    ports.over = True
    beside_shards(tmp_path, ports)
    assert (len(saved), ports.asked) == (2, [])
