"""What a run keeps of its launches."""

import json
from pathlib import Path

import pytest

from penstock.config.schema import RunConfig
from penstock.errors import RunFolderError
from penstock.saved_runs import launches
from penstock.saved_runs.run_folder import RunFolder


def test_a_working_directory_that_was_removed_fails_no_launch(tmp_path: Path, monkeypatch) -> None:
    def removed() -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(launches.Path, "cwd", removed)
    launches.add_launch(RunFolder(tmp_path), None, RunConfig(env="X"), 0, ())
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
    for read in (launches.first_launch, launches.each_launch):
        with pytest.raises(RunFolderError, match=r"^cannot read .*launches.jsonl: Is a directory$"):
            read(folder)


def test_launches_that_are_torn_are_left_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert launches.each_launch(folder) == []
    launches.add_launch(folder, None, RunConfig(env="X"), 0)
    with folder.launches_path.open("a") as file:
        file.write('{"checkpoint": "upd\n3\n' + "[" * 10_000 + "\n")
    launches.add_launch(folder, "update-00000004", RunConfig(env="X", max_batch=8), 400)
    first, second = launches.each_launch(folder)
    assert (first["checkpoint"], first["steps"], "max_batch" in first["settings"]) == (None, 0, False)
    assert (second["checkpoint"], second["steps"], second["settings"]["max_batch"]) == ("update-00000004", 400, 8)
    assert set(second["settings"]) == set(launches.SETTINGS)


def test_a_line_behind_a_torn_one_is_a_line_of_its_own(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.launches_path.write_text('{"checkpoint": "upd')
    for name in ("update-00000004", "update-00000008"):
        launches.add_launch(folder, name, RunConfig(env="X"), 400)
    assert [launch["checkpoint"] for launch in launches.each_launch(folder)] == ["update-00000004", "update-00000008"]
