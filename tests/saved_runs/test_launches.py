"""What a run keeps of its launches."""

import json
from pathlib import Path

import pytest

from penstock.errors import RunFolderError
from penstock.saved_runs import launches
from penstock.saved_runs.run_folder import RunFolder


def test_a_working_directory_that_was_removed_fails_no_launch(tmp_path: Path, monkeypatch) -> None:
    def removed() -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(launches.Path, "cwd", removed)
    launches.add_launch(RunFolder(tmp_path), None)
    (line,) = (tmp_path / "launches.jsonl").read_text().splitlines()
    assert json.loads(line)["directory"] is None


def test_the_first_launch_tells_a_run_from_another_one_of_its_name(tmp_path: Path) -> None:
    folder, other = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "other")
    assert launches.first_launch(folder) == ""
    for run, text in ((folder, "first\nsecond\n"), (other, "another\n")):
        run.path.mkdir()
        run.launches_path.write_text(text)
    assert (launches.first_launch(folder), launches.first_launch(other)) == ("first\n", "another\n")


def test_launches_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.launches_path.mkdir()
    with pytest.raises(RunFolderError, match=r"^cannot read .*launches.jsonl: Is a directory$"):
        launches.first_launch(folder)
