"""Folders that are gone once their process is, killed or not."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.saved_runs import scratch
from penstock.saved_runs.scratch import scratch_folder

PREFIX = "penstock-tried-"
HOLDS = f"""
from penstock.saved_runs.scratch import scratch_folder
with scratch_folder({PREFIX!r}) as folder:
    (folder / "file").write_text("held")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_ends_with_its_block(temporary) -> None:
    with scratch_folder(PREFIX) as folder:
        (folder / "within").mkdir()
        assert list(temporary.iterdir()) == [folder]
    assert not list(temporary.iterdir())


def test_what_a_killed_process_has_left_is_removed_by_the_next_one(temporary) -> None:
    (temporary / "penstock-other-1").mkdir()
    (temporary / f"{PREFIX}file").write_text("none of ours")
    (temporary / f"{PREFIX}link").symlink_to(temporary / "penstock-other-1")
    others = set(temporary.iterdir())
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        with scratch_folder(PREFIX) as mine:
            assert set(temporary.iterdir()) == {*others, held, mine}
        process.kill()
    assert (held / "file").read_text() == "held"
    with scratch_folder(PREFIX) as mine:
        assert set(temporary.iterdir()) == {*others, mine}


def test_a_folder_that_was_taken_before_it_was_locked_is_made_again(temporary, monkeypatch) -> None:
    lock, taken = scratch.fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not taken:
            (new,) = temporary.iterdir()
            new.rmdir()
            taken.append(new)
        lock(descriptor, how)

    monkeypatch.setattr(scratch.fcntl, "flock", late)
    with scratch_folder(PREFIX) as folder:
        assert folder.is_dir()
        assert folder != taken[0]
