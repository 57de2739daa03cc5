"""What git says of a folder of code."""

import os
import subprocess
from pathlib import Path

import pytest

from penstock.saved_runs import repository
from penstock.saved_runs.repository import repository_of, state_of


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine git may take long."""
    monkeypatch.setattr(repository, "LIMIT_S", 60.0)


def git(folder: Path, *arguments: str) -> str:
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", folder, *own, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one commit."""
    made = tmp_path / "project"
    made.mkdir()
    git(made, "init", "-q")
    (made / "own_env.py").write_text("SPEED = 1\n")
    git(made, "add", "own_env.py")
    git(made, "commit", "-q", "-m", "first")
    return made


def head(project: Path) -> str:
    return git(project, "rev-parse", "HEAD").strip()


def test_a_repository_is_found_above_a_module_without_a_process(project: Path, tmp_path: Path, monkeypatch) -> None:
    inner = project / "package" / "deep"
    inner.mkdir(parents=True)
    (inner / "module.py").touch()
    monkeypatch.setattr(subprocess, "Popen", None)
    assert repository_of(inner / "module.py") == project
    assert repository_of(project) == project
    assert repository_of(tmp_path / "alone.py") is None


def test_the_commit_is_known_and_that_nothing_was_changed(project: Path) -> None:
    (project / "untracked.py").touch()
    assert state_of(project) == (project, head(project), b"", ())


def test_changes_are_a_diff_that_makes_the_same_files(project: Path, tmp_path: Path) -> None:
    git(project, "config", "diff.noprefix", "true")
    git(project, "config", "color.ui", "always")
    git(project, "config", "diff.context", "0")
    git(project, "config", "diff.submodule", "log")
    (project / "own_env.py").write_text("SPEED = 2\n")
    (project / "added.py").write_text("NEW = True\n")
    git(project, "add", "added.py")
    state = state_of(project)
    assert state.diff is not None
    assert b"-SPEED = 1\n+SPEED = 2\n" in state.diff
    git(tmp_path, "clone", "-q", str(project), "clone")
    (tmp_path / "changes.diff").write_bytes(state.diff)
    git(tmp_path / "clone", "apply", str(tmp_path / "changes.diff"))
    for name in ("own_env.py", "added.py"):
        assert (tmp_path / "clone" / name).read_text() == (project / name).read_text()


def test_files_that_often_hold_secrets_are_in_no_diff(project: Path) -> None:
    (project / "deep").mkdir()
    names = (".env", "deep/.ENV.local", "deep/server.key", "server.pem", "deep/monkey.py")
    for name in names:
        (project / name).write_text("old\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "second")
    for name in names:
        (project / name).write_text(f"secret of {name}\n")
    diff = state_of(project).diff
    assert diff is not None
    assert [line for line in diff.decode().splitlines() if "secret" in line] == ["+secret of deep/monkey.py"]


def test_of_a_home_folder_only_the_commit_is_known(project: Path, monkeypatch) -> None:
    """Its repository may be of settings, such as those of a shell."""
    (project / "own_env.py").write_text("SPEED = 2\n")
    monkeypatch.setenv("HOME", str(project))
    state = state_of(project)
    assert (state.commit, state.diff) == (head(project), None)
    (note,) = state.notes
    assert note.startswith(f"the changes in {project} since its commit are not kept: it is your home folder, ")


def test_a_worktree_has_its_own_commit(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    git(tmp_path / "tree", "commit", "-q", "--allow-empty", "-m", "second")
    assert repository_of(tmp_path / "tree" / "own_env.py") == tmp_path / "tree"
    assert state_of(tmp_path / "tree").commit == head(tmp_path / "tree") != head(project)


def test_of_a_long_diff_the_beginning_is_kept_and_that_is_said(project: Path, monkeypatch) -> None:
    monkeypatch.setattr(repository, "DIFF_LIMIT", 100)
    (project / "own_env.py").write_text("SPEED = 2\n" * 100_000)
    state = state_of(project)
    assert state.commit == head(project)
    assert len(state.diff or b"") == 100
    assert state.notes == (f"the changes in {project} since its commit are more than 100 bytes: the rest is not kept",)


def test_a_repository_without_a_commit_has_a_note(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    state = state_of(tmp_path)
    assert (state.commit, state.diff) == (None, None)
    assert len(state.notes) == 1
    assert state.notes[0].startswith(f"the commit of {tmp_path} is not known: fatal: ")


def test_a_broken_git_folder_is_not_taken_for_the_repository_above(project: Path) -> None:
    inner = project / "inner"
    (inner / ".git").mkdir(parents=True)
    assert repository_of(inner / "module.py") == inner
    assert state_of(inner).commit is None


def test_where_git_is_not_installed_a_note_says_so(project: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert state_of(project).notes == (f"the commit of {project} is not known: git is not installed",)


def slow_git(folder: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """Put a git before the real one that hangs at one of its commands."""
    folder.mkdir()
    script = folder / "git"
    script.write_text(f'#!/bin/sh\ncase "$*" in *"{which}"*) exec sleep 600;; *) echo 0123abcd;; esac\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(repository, "LIMIT_S", 3.0)


def test_a_git_that_hangs_is_ended(project: Path, tmp_path: Path, monkeypatch) -> None:
    slow_git(tmp_path / "bin", monkeypatch, " rev-parse ")
    assert state_of(project).notes == (f"the commit of {project} is not known: it took longer than 3 s",)


def test_a_diff_that_takes_too_long_is_not_known(project: Path, tmp_path: Path, monkeypatch) -> None:
    slow_git(tmp_path / "bin", monkeypatch, " diff HEAD ")
    state = state_of(project)
    assert (state.commit, state.diff) == ("0123abcd", None)
    assert state.notes == (f"the changes in {project} since its commit are not known: git took longer than 3 s",)


def test_the_repository_of_another_command_is_not_looked_at(project: Path, tmp_path: Path, monkeypatch) -> None:
    """A hook of git that starts a run has these variables."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    commit = state_of(project).commit
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_WORK_TREE")
    assert commit == head(project)


def test_a_run_does_not_touch_the_index(project: Path) -> None:
    index = project / ".git" / "index"
    # Git would refresh what it knows of this file.
    os.utime(project / "own_env.py", (1, 1))
    before = index.read_bytes()
    assert state_of(project).diff == b""
    assert index.read_bytes() == before
