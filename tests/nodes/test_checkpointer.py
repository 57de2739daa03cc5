"""CheckpointerNode: what its next life does with what the one before has left."""

import contextlib
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.metrics.histograms import Histograms, Part
from penstock.metrics.report import Report
from penstock.nodes.checkpointer import CheckpointerNode, CheckpointerSettings
from penstock.saved_runs.durable import remove_folder
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
    """A stream with one checkpoint in it, and a meeting."""

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

    def meeting(self, role: str, make: Callable[[], object]) -> object:
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
