"""A checkpointer's real file operations, recorded and cut off at any place: by a kill, and by a loss of power."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from penstock.errors import CheckpointError
from penstock.saved_runs.best import find_checkpoint, prune_checkpoints
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint, save_checkpoint, set_aside_after
from penstock.saved_runs.durable import sweep

FACTS = {"env": "X", "spaces": "Box", "algorithm": "ppo", "steps": 1}


class Operation(NamedTuple):
    """One change of the disk, or one wait for it; paths are relative to the run folder."""

    kind: str
    path: str
    target: str = ""
    content: bytes = b""


def save(run: Path, update: int) -> Path:
    return save_checkpoint(run, {"x": np.full(40, float(update))}, {**FACTS, "update": update})


@contextmanager
def recorded(run: Path) -> Iterator[list[Operation]]:
    """The operations on files below ``run``, as they are made."""
    done: list[Operation] = []
    names: dict[int, str] = {}

    def note(kind: str, path: Path, target: Path | None = None, content: bytes = b"") -> None:
        done.append(Operation(kind, name(path), "" if target is None else name(target), content))

    def name(path: Path) -> str:
        return str(path.relative_to(run))

    class Writing:
        def __init__(self, file, path: Path) -> None:
            self.file, self.path, self.flush = file, path, file.flush

        def __enter__(self):
            return self

        def __exit__(self, *_) -> None:
            self.file.close()

        def fileno(self) -> int:
            names[self.file.fileno()] = name(self.path)
            return self.file.fileno()

        def write(self, content: bytes) -> None:
            # In parts: a kill or a full disk may come within one.
            for part in (content[:7], content[7 : len(content) // 2], content[len(content) // 2 :]):
                note("write", self.path, content=part)
            self.file.write(content)

    with pytest.MonkeyPatch.context() as patch:
        real_open, real_os_open, real_fsync, real_rmtree = Path.open, os.open, os.fsync, shutil.rmtree

        def opened(path, mode="r", *args, **kwargs):
            file = real_open(path, mode, *args, **kwargs)
            if mode != "wb":
                return file
            note("create", path)
            return Writing(file, path)

        def os_opened(path, *args, **kwargs):
            descriptor = real_os_open(path, *args, **kwargs)
            names[descriptor] = name(Path(path))
            return descriptor

        def synced(descriptor) -> None:
            done.append(Operation("fsync", names[descriptor]))
            real_fsync(descriptor)

        def removed(path, *args, **kwargs) -> None:
            if Path(path).exists():
                note("remove", Path(path))
            with patch.context() as inner:
                inner.setattr(os, "open", real_os_open)
                real_rmtree(path, *args, **kwargs)

        def changed(kind: str, original: Callable) -> Callable:
            def change(path, *args, **kwargs):
                note(kind, path, Path(args[0]) if kind == "rename" else None)
                return original(path, *args, **kwargs)

            return change

        patch.setattr(Path, "open", opened)
        patch.setattr(os, "open", os_opened)
        patch.setattr(os, "fsync", synced)
        patch.setattr(shutil, "rmtree", removed)
        patch.setattr(Path, "mkdir", changed("mkdir", Path.mkdir))
        patch.setattr(Path, "rename", changed("rename", Path.rename))
        patch.setattr(Path, "replace", changed("rename", Path.replace))
        yield done


def replay(run: Path, operations: list[Operation], *, data_lost: bool, names_lost: bool) -> None:
    """Do the operations. A loss of power loses all that was not synced: contents, and names of new files."""
    unsynced_data: set[Path] = set()
    unsynced_names: set[Path] = set()
    for kind, name, target, content in operations:
        path = run / name
        match kind:
            case "mkdir":
                path.mkdir(parents=True, exist_ok=True)
            case "create":
                path.write_bytes(b"")
                unsynced_data.add(path)
                unsynced_names.add(path)
            case "write":
                path.write_bytes(path.read_bytes() + content)
                unsynced_data.add(path)
            case "fsync":
                unsynced_data.discard(path)
                unsynced_names = {other for other in unsynced_names if other.parent != path}
            case "rename":
                path.rename(run / target)
                unsynced_data = {_moved(other, path, run / target) for other in unsynced_data}
                unsynced_names = {_moved(other, path, run / target) for other in unsynced_names}
            case "remove":
                shutil.rmtree(path)
                unsynced_data = {other for other in unsynced_data if path not in other.parents}
                unsynced_names = {other for other in unsynced_names if path not in other.parents}
    for path in unsynced_data if data_lost else ():
        path.write_bytes(b"")
    for path in unsynced_names if names_lost else ():
        path.unlink()


def _moved(path: Path, before: Path, after: Path) -> Path:
    return after / path.relative_to(before) if path.is_relative_to(before) else path


def life(run: Path) -> None:
    """What a checkpointer does in a run and after a resume from its first checkpoint."""
    save(run, 2)
    save(run, 3)
    prune_checkpoints(run, 2)
    set_aside_after(run, 2)
    save(run, 3)


@pytest.mark.parametrize(
    ("data_lost", "names_lost"), list(itertools.product((False, True), repeat=2)), ids=["kill", "names", "data", "both"]
)
def test_wherever_the_operations_are_cut_off_whatever_is_listed_is_whole(tmp_path, monkeypatch, data_lost, names_lost):
    rehearsal = tmp_path / "rehearsal"
    save(rehearsal, 1)
    with recorded(rehearsal) as operations:
        life(rehearsal)
    kinds = {operation.kind for operation in operations}
    assert kinds == {"mkdir", "create", "write", "fsync", "rename", "remove"}
    assert len(operations) > 40
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power is cut here, and there are hundreds
    for count in range(len(operations) + 1):
        run = tmp_path / f"run-{count}"
        save(run, 1)
        replay(run, operations[:count], data_lost=data_lost, names_lost=names_lost)
        assert list_checkpoints(run)
        for path in list_checkpoints(run):
            loaded = load_checkpoint(path)
            assert path.name == f"update-{loaded.manifest['update']:08d}"
            assert (loaded.arrays["x"] == loaded.manifest["update"]).all()
        sweep(run / "checkpoints")
        assert load_checkpoint(save(run, 9)).arrays["x"][0] == 9.0
        assert find_checkpoint(run).name == "update-00000009"
        shutil.rmtree(run)


def test_the_check_finds_a_rename_that_comes_before_its_contents_are_synced(tmp_path):
    rehearsal = tmp_path / "rehearsal"
    save(rehearsal, 1)
    with recorded(rehearsal) as operations:
        save(rehearsal, 2)
    careless = [operation for operation in operations if operation.kind != "fsync"]
    save(tmp_path / "run", 1)
    replay(tmp_path / "run", careless, data_lost=True, names_lost=False)
    with pytest.raises(CheckpointError, match="--checkpoint update-00000001"):
        load_checkpoint(find_checkpoint(tmp_path / "run"))
