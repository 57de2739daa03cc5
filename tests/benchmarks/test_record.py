"""From which tree a result may be written, and where. Nothing is measured here."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import record


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit: some code, a result and a document."""
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.delenv(record.ALLOW, raising=False)
    for name in ("src/code.py", "benchmarks/results/slots.json", "README.md", "docs/images/slots.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("where", [["--write", "result.json"], ["--write=result.json"], []])
def test_a_command_has_the_given_words_but_not_where_it_writes(where, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["slots.py", "--rounds", "3", *where, "--cases", "two words"])
    command = record.command_of("python -m benchmarks.slots")
    assert command == "python -m benchmarks.slots --rounds 3 --cases 'two words'"


def test_a_clean_tree_is_named_by_its_commit(tree: Path) -> None:
    path = record.destination(str(tree / "benchmarks/results/board.json"))
    record.write(path, {"holds": True})
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, check=True, capture_output=True, text=True).stdout
    found = json.loads(path.read_text())
    assert (found["commit"], found["holds"]) == (head[:12], True)


def test_results_and_documents_change_nothing_that_is_measured(tree: Path) -> None:
    for name in ("benchmarks/results/slots.json", "README.md", "docs/images/slots.png"):
        (tree / name).write_text("second")
    record.write(tree / "benchmarks/results/slots.json", {})
    assert not json.loads((tree / "benchmarks/results/slots.json").read_text())["commit"].endswith("+")


def test_changed_code_is_refused_before_anything_is_measured(tree: Path) -> None:
    (tree / "src/code.py").write_text("second")
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--write", type=record.destination)
    with pytest.raises(argparse.ArgumentError, match=r"commit what has changed .*src/code\.py"):
        parser.parse_args(["--write", str(tree / "benchmarks/results/slots.json")])


def test_what_was_measured_while_code_changed_is_kept_elsewhere(tree: Path) -> None:
    (tree / "src/code.py").write_text("second")
    with pytest.raises(record.DirtyTreeError, match=r"stands in .*build/dirty/slots\.json"):
        record.write(tree / "benchmarks/results/slots.json", {"holds": True})
    assert (tree / "benchmarks/results/slots.json").read_text() == "first"
    assert json.loads((tree / "build/dirty/slots.json").read_text())["holds"]


def test_it_may_be_allowed_and_is_marked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "src/code.py").write_text("second")
    monkeypatch.setenv(record.ALLOW, "1")
    record.write(tree / "benchmarks/results/slots.json", {})
    assert json.loads((tree / "benchmarks/results/slots.json").read_text())["commit"].endswith("+")


def test_what_is_not_committed_is_written_from_any_tree(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (tree / "src/code.py").write_text("second")
    for path in (tree / "build/benchmarks/slots.json", tmp_path_factory.mktemp("elsewhere") / "slots.json"):
        record.write(record.destination(path), {})
        assert json.loads(path.read_text())["commit"].endswith("+")
