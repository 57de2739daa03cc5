"""What a run folder keeps of the user's own code."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.config.schema import RunConfig
from penstock.saved_runs import code, repository
from penstock.saved_runs.code import code_text, keep_code
from penstock.saved_runs.launches import add_launch, last_code
from penstock.saved_runs.run_folder import RunFolder
from tests.saved_runs.test_repository import git, head

RUN = RunConfig(env="X")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with modules of the user's."""
    monkeypatch.setattr(repository, "LIMIT_S", 60.0)
    made = tmp_path / "own"
    (made / "pack" / "algo" / "__pycache__").mkdir(parents=True)
    files = {
        "kept_env.py": "import beside\n",
        "beside.py": "",
        "pack/__init__.py": "",
        "pack/shaping.py": "REWARD = 1\n",
        "pack/algo/__init__.py": "",
        "pack/algo/spec.py": "GAMMA = 0.9\n",
        "pack/algo/weights.bin": "data",
        "pack/algo/__pycache__/spec.py": "cached",
    }
    for name, text in files.items():
        (made / name).write_text(text)
    monkeypatch.syspath_prepend(str(made))
    return made


def copied(run: RunFolder, kept: dict[str, Any] | None) -> dict[str, str]:
    assert kept is not None
    folder = run.path / kept["folder"]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_modules_that_a_run_names_are_copied_and_no_others(run: RunFolder, own: Path) -> None:
    kept = keep_code(run, ["kept_env", "pack.shaping", "pack.algo", "numpy", "no_such_module", "gymnasium.envs"])
    assert copied(run, kept) == {
        "kept_env.py": "import beside\n",
        "pack/shaping.py": "REWARD = 1\n",
        "pack/algo/__init__.py": "",
        "pack/algo/spec.py": "GAMMA = 0.9\n",
    }
    assert kept is not None
    assert kept["files"] == sorted(copied(run, kept))
    assert (kept["repositories"], kept["notes"]) == ([], [])


def test_the_script_of_an_object_without_a_name_is_copied(run: RunFolder, own: Path, monkeypatch) -> None:
    (own / "script.py").write_text("train()\n")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(own / "script.py"), raising=False)
    assert copied(run, keep_code(run, ["__main__"])) == {"script.py": "train()\n"}
    (own / "script.py").rename(own / "started")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(own / "started"))
    assert copied(run, keep_code(run, ["__main__"])) == {"started": "train()\n"}
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    assert keep_code(run, ["__main__"]) is None


def test_a_script_that_comes_out_of_a_pipe_has_a_note(run: RunFolder, own: Path, monkeypatch) -> None:
    os.mkfifo(own / "pipe")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(own / "pipe"), raising=False)
    kept = keep_code(run, ["__main__"])
    assert kept is not None
    assert (kept["files"], kept["notes"]) == ([], [f"{own / 'pipe'} is not kept: it is no file"])


def test_what_is_installed_is_never_copied_and_asks_no_git(run: RunFolder, own: Path, monkeypatch) -> None:
    """Also inside a repository, and where it belongs to another Python, whose folder was put on the path."""
    elsewhere = own / "lib" / "site-packages"
    elsewhere.mkdir(parents=True)
    (elsewhere / "brought.py").touch()
    git(own, "init", "-q")
    monkeypatch.syspath_prepend(str(elsewhere))
    monkeypatch.setattr(code, "state_of", None)
    assert keep_code(run, [np.__name__, "sys", "brought", "penstock.envs.atari"]) is None
    assert not run.code.exists()


def test_without_a_repository_no_process_is_started(run: RunFolder, own: Path, monkeypatch) -> None:
    monkeypatch.setattr(code, "state_of", None)
    assert keep_code(run, ["kept_env"]) is not None


def test_the_commit_and_the_changes_since_are_kept(run: RunFolder, own: Path) -> None:
    git(own, "init", "-q")
    git(own, "add", ".")
    git(own, "commit", "-q", "-m", "first")
    clean = keep_code(run, ["kept_env", "pack.shaping"])
    assert clean is not None
    commit = head(own)
    assert clean["repositories"] == [{"path": str(own), "commit": commit, "changed": False, "diff": None}]
    assert code_text(clean) == f"commit {commit[:12]}"
    (own / "beside.py").write_text("SPEED = 2\n")
    changed = keep_code(run, ["kept_env", "pack.shaping"])
    assert changed is not None
    assert changed["repositories"] == [{"path": str(own), "commit": commit, "changed": True, "diff": "own.diff"}]
    assert "+SPEED = 2\n" in copied(run, changed)["own.diff"]
    assert code_text(changed) == f"commit {commit[:12]} with changes"
    # That of the first launch is still there.
    assert "own.diff" not in copied(run, clean)
    assert len(list(run.code.iterdir())) == 2


def test_equal_code_is_kept_once_and_what_a_power_cut_has_emptied_is_written_anew(run: RunFolder, own: Path) -> None:
    first = keep_code(run, ["kept_env"])
    assert keep_code(run, ["kept_env"]) == first
    assert first is not None
    path = run.path / first["folder"] / "kept_env.py"
    path.write_text("")
    (run.code / "left.partial").mkdir()
    assert keep_code(run, ["kept_env"]) == first
    assert path.read_text() == "import beside\n"
    assert [entry.name for entry in run.code.iterdir()] == [Path(first["folder"]).name]


def test_copies_are_bounded_and_a_note_says_what_is_missing(run: RunFolder, own: Path, monkeypatch) -> None:
    monkeypatch.setattr(code, "COPY_LIMIT", 15)
    kept = keep_code(run, ["kept_env", "pack"])
    # 14 bytes; empty files have room beside it.
    assert copied(run, kept).keys() == {"kept_env.py", "pack/__init__.py", "pack/algo/__init__.py"}
    assert kept is not None
    (note,) = kept["notes"]
    assert note == (
        f"modules not kept: 2, the first is {own / 'pack' / 'shaping.py'}; at most {code.FILES_LIMIT} modules and 15 "
        "bytes are"
    )


def test_a_package_with_very_many_files_is_not_read_to_its_end(run: RunFolder, own: Path, monkeypatch) -> None:
    monkeypatch.setattr(code, "FILES_LIMIT", 2)
    kept = keep_code(run, ["pack"])
    assert copied(run, kept).keys() == {"pack/__init__.py", "pack/shaping.py"}
    assert kept is not None
    assert kept["notes"] == [f"{own / 'pack'} holds too many files: only some of its modules are kept"]


def test_what_cannot_be_read_or_is_no_text_has_a_note(run: RunFolder, own: Path, monkeypatch) -> None:
    read_bytes = Path.read_bytes

    def refused(path: Path) -> bytes:
        # A superuser, who may run these tests, reads every file.
        if path.name == "kept_env.py":
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    (own / "compiled.so").touch()
    monkeypatch.setattr(code, "place_of", lambda module: own / {"one": "kept_env.py", "two": "compiled.so"}[module])
    kept = keep_code(run, ["one", "two"])
    assert kept is not None
    assert (kept["folder"], kept["files"]) == (None, [])
    assert kept["notes"] == [
        f"{own / 'kept_env.py'} is not kept: Permission denied",
        f"{own / 'compiled.so'} is no source of Python: it is not kept",
    ]


def test_a_run_folder_that_takes_no_copies_fails_no_launch(run: RunFolder, own: Path) -> None:
    run.code.write_text("a file of this name")
    add_launch(run, None, RUN, 0, ["kept_env"])
    found = last_code(run)
    assert found is not None
    assert (found["folder"], found["files"]) == (None, [])
    assert "note: code: " in run.log_path.read_text()
    assert "cannot be written: " in run.log_path.read_text()


def test_the_line_of_a_launch_has_its_code(run: RunFolder, own: Path) -> None:
    add_launch(run, None, RUN, 0, ["numpy"])
    assert last_code(run) is None
    add_launch(run, "update-00000001", RUN, 100, ["kept_env"])
    lines = [json.loads(line) for line in run.launches_path.read_text().splitlines()]
    assert lines[0]["code"] is None
    assert lines[1]["code"] == last_code(run)
    assert lines[1]["code"]["files"] == ["kept_env.py"]


def test_a_launch_says_whether_the_users_code_has_changed(run: RunFolder, own: Path) -> None:
    assert add_launch(run, None, RUN, 0, ["pack.shaping"]) == ()
    assert add_launch(run, "update-00000001", RUN, 100, ["pack.shaping"]) == ()
    (own / "pack" / "shaping.py").write_text("REWARD = -1\n")
    (line,) = add_launch(run, "update-00000001", RUN, 100, ["pack.shaping"])
    assert line.startswith("your own code has changed since the last launch: code/")
    assert add_launch(run, "update-00000002", RUN, 200, ["pack.shaping"]) == ()


@pytest.mark.parametrize("text", [None, "", "no json\n", '{"time": "of an older version"}\n', "7\n"])
def test_a_run_without_a_line_on_its_code_has_none(run: RunFolder, text: str | None) -> None:
    if text is not None:
        run.launches_path.write_text(text)
    assert last_code(run) is None


def test_a_module_in_the_working_directory_is_found(run: RunFolder, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "kept_here.py").write_text("HERE = 1\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert copied(run, keep_code(run, ["kept_here"])) == {"kept_here.py": "HERE = 1\n"}
    assert os.fspath(tmp_path / "here") in sys.path


def test_changes_that_are_not_known_are_not_taken_for_none() -> None:
    one = {"path": "/x", "commit": "0123456789abcdef", "changed": None, "diff": None}
    assert code_text({"repositories": [one]}) == "commit 0123456789ab, changes unknown"
    assert code_text({"repositories": [{**one, "commit": None}]}) == ""
    assert code_text(None) == ""
