"""What a run keeps of its launches."""

import json
from pathlib import Path

from penstock.saved_runs import launches
from penstock.saved_runs.run_folder import RunFolder


def test_a_working_directory_that_was_removed_fails_no_launch(tmp_path: Path, monkeypatch) -> None:
    def removed() -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(launches.Path, "cwd", removed)
    launches.add_launch(RunFolder(tmp_path), None)
    (line,) = (tmp_path / "launches.jsonl").read_text().splitlines()
    assert json.loads(line)["directory"] is None
