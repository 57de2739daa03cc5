"""CheckpointerNode: what its next life does with what the one before has left."""

import contextlib
import shutil
from pathlib import Path

import pytest

from penstock.nodes.checkpointer import CheckpointerNode, CheckpointerSettings
from penstock.saved_runs.durable import remove_folder


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
