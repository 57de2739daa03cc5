"""Folders that are replaced: whole at any time, and unchanged where that fails."""

import shutil
import sys
from pathlib import Path

import pytest

from penstock.saved_runs import durable
from penstock.saved_runs.durable import replace_folder, write_folder

NEW = {"a": b"new"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "bundle"
    write_folder(path, {"a": b"old"})
    return path


def content(path: Path) -> bytes:
    return (path / "a").read_bytes()


def is_portable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_exchange", lambda *_: False)


@pytest.mark.parametrize("portable", [False, True])
def test_the_older_folder_is_removed_once_the_new_one_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, portable: bool
) -> None:
    seen, remove = [], shutil.rmtree

    def removed(path: Path, **settings: bool) -> None:
        if path.exists():
            seen.append((content(path), content(folder)))
        remove(path, **settings)

    if portable:
        is_portable(monkeypatch)
    monkeypatch.setattr(shutil, "rmtree", removed)
    replace_folder(folder, NEW)
    assert seen == [(b"old", b"new")]
    assert content(folder) == b"new"
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]


if sys.platform == "linux":  # no other system exchanges two names in one step

    def test_on_linux_the_name_is_never_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        renamed, rename = [], Path.rename
        monkeypatch.setattr(Path, "rename", lambda path, target: (renamed.append(path.name), rename(path, target))[1])
        replace_folder(folder, NEW)
        assert "bundle" not in renamed


def test_a_rename_that_fails_leaves_the_older_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if target == folder and path.name == "bundle.fresh.partial":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    is_portable(monkeypatch)
    monkeypatch.setattr(Path, "rename", renamed)
    with pytest.raises(OSError, match="No space left"):
        replace_folder(folder, NEW)
    assert content(folder) == b"old"
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]
