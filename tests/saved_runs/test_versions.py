"""The versions of a run: what is known of each, and which stay, by rules and by pins."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.cli import main
from penstock.errors import CheckpointError, RunFolderError
from penstock.saved_runs.best import prune_checkpoints
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint, save_checkpoint, set_aside_after
from penstock.saved_runs.durable import remove_folder
from penstock.saved_runs.run_folder import RunFolder
from penstock.saved_runs.versions import clone, lineage, pin, prune, table, unpin, versions

FACTS = {"env": "CartPole-v1", "spaces": "Box", "algorithm": "ppo"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run that keeps each second update."""
    logs = tmp_path_factory.mktemp("logs")
    config = {
        "env": "CartPole-v1",
        "num_envs": 2,
        "num_steps": 8,
        "mini_batch_size": 8,
        "timesteps": 128,
        "save_interval": 1,
        "keep_checkpoints": 1,
        "keep_every": 2,
        "eval_episodes": 0,
        "runtime": "inline",
        "log_dir": str(logs),
    }
    return penstock.train(config, quiet=True)


def run_of(tmp_path, *updates):
    """A folder with checkpoints of these updates; the update is the score."""
    for update in updates:
        facts = {**FACTS, "update": update, "steps": 10 * update, "return_mean": float(update)}
        save_checkpoint(tmp_path, {"actor": np.zeros(2, np.float32)}, facts)
    return tmp_path


def names(run):
    return [int(path.name.removeprefix("update-")) for path in list_checkpoints(run)]


def test_a_run_keeps_what_its_rules_say_and_needs_no_evaluation(trained):
    updates = names(trained.run_folder)
    assert trained.evaluation is None
    assert updates[-1] == 8
    assert {2, 4, 6, 8} <= set(updates)
    # Besides these only the best.
    assert len(updates) <= 5


def test_pins_and_multiples_stay(tmp_path):
    run = run_of(tmp_path, 1, 2, 3, 4, 5, 6, 7)
    assert pin(run, "3") == "update-00000003"
    prune_checkpoints(run, 1, every=5)
    assert names(run) == [3, 5, 7]
    assert unpin(run, "3") == "update-00000003"
    prune_checkpoints(run, 1)
    assert names(run) == [7]


def test_a_pin_does_not_pass_on_to_another_version_of_the_same_name(tmp_path):
    run = run_of(tmp_path, 1, 2, 3)
    pin(run, "3")
    set_aside_after(run, 2)
    run_of(tmp_path, 3, 4, 5)
    prune_checkpoints(run, 1)
    assert names(run) == [5]


def test_wrong_pins_are_one_line(tmp_path):
    run = run_of(tmp_path, 1, 2)
    with pytest.raises(CheckpointError, match="has no checkpoint 7"):
        pin(run, "7")
    with pytest.raises(CheckpointError, match="update-00000001 is not pinned; pinned: none"):
        unpin(run, "1")


def test_a_run_without_checkpoints_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        table(run_of(tmp_path))


def test_what_is_known_of_each_version(tmp_path):
    run = run_of(tmp_path, 1, 2, 3)
    line = {"update": 2, "steps": 20, "time_s": 1.0, "eval/return_mean": 50.0}
    final = {"update": 3, "steps": 30, "time_s": 1.0, "eval/return_mean": 40.0, "eval/final": 1.0}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(final) + "\n")
    pin(run, "latest")
    (run / "checkpoints/update-00000001/manifest.json").write_text("{")
    first, second, third = versions(run)
    assert first.damage
    assert (second.steps, second.return_mean, second.evaluation, second.is_pinned) == (20, 2.0, 50.0, False)
    assert (third.evaluation, third.final_evaluation, third.damage) == (None, 40.0, "")
    assert third.is_pinned
    assert third.is_best


def test_a_clone_is_a_run_of_its_own(trained):
    folder = RunFolder.open(trained.run_folder)
    made = clone(folder, "4")
    assert names(made.path) == [4]
    assert lineage(made.path).origin == (folder.name, "update-00000004")
    assert lineage(folder.path).clones == (("update-00000004", made.name),)
    more = penstock.resume(made.path, timesteps=96, quiet=True)
    assert more.updates == 6
    assert names(folder.path)[-1] == 8


def test_a_damaged_version_is_not_cloned(tmp_path, trained):
    folder = RunFolder.open(trained.run_folder)
    before = sorted(path.name for path in folder.path.parent.iterdir())
    with pytest.raises(CheckpointError, match="has no checkpoint 77"):
        clone(folder, "77")
    assert sorted(path.name for path in folder.path.parent.iterdir()) == before


def test_a_version_that_is_removed_while_it_is_cloned_leaves_nothing(trained, tmp_path, monkeypatch):
    folder = RunFolder(Path(shutil.copytree(trained.run_folder, tmp_path / "run")))

    def loaded(path: Path) -> None:
        load_checkpoint(path)
        remove_folder(path)

    monkeypatch.setattr("penstock.saved_runs.versions.load_checkpoint", loaded)
    with pytest.raises(CheckpointError, match="update-00000004 was removed while it was being cloned"):
        clone(folder, "4")
    assert list(tmp_path.iterdir()) == [folder.path]


def test_a_clone_that_a_full_disk_ends_leaves_nothing(trained, tmp_path, monkeypatch):
    folder = RunFolder(Path(shutil.copytree(trained.run_folder, tmp_path / "run")))

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # The config is the last file.
    monkeypatch.setattr("penstock.saved_runs.run_folder.write_file", full)
    with pytest.raises(RunFolderError, match="cannot be written: No space left on device"):
        clone(folder, "4")
    assert list(tmp_path.iterdir()) == [folder.path]


def test_a_run_that_trains_is_not_pruned(trained):
    folder = RunFolder.open(trained.run_folder)
    with folder.claim(), pytest.raises(RunFolderError, match="in use"):
        prune(folder, 1)


def test_good_versions_are_not_pruned_for_a_damaged_one(trained):
    folder = RunFolder.open(trained.run_folder)
    before = list_checkpoints(folder.path)
    state = before[-1] / "state.safetensors"
    content = state.read_bytes()
    state.write_bytes(content[:-1])
    try:
        with pytest.raises(CheckpointError, match=before[-1].name):
            prune(folder, 1)
    finally:
        state.write_bytes(content)
    assert len(before) > 1
    assert list_checkpoints(folder.path) == before


def test_the_command(trained, capsys):
    run = str(trained.run_folder)

    def said(*arguments: str) -> str:
        assert main(["models", run, *arguments]) == 0
        return capsys.readouterr().out

    assert "update-00000008" in said()
    assert said("--pin", "2") == f"pinned update-00000002 of {trained.run_folder.name}\n"
    assert "pinned" in said()
    assert "update-00000002" not in said("--prune", "1")
    found = json.loads(said("--json"))
    assert [one["update"] for one in found["versions"] if one["is_pinned"]] == [2]
    assert said("--unpin", "2") == f"unpinned update-00000002 of {trained.run_folder.name}\n"
    assert "removed update-00000002" in said("--prune", "1")
    assert "penstock resume" in said("--clone", "latest")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--pin", "2", "--clone", "2"], "--pin and --clone: one at a time"),
        (["--keep_every", "2"], "--keep_every is for --prune"),
        (["--pin", "999"], "has no checkpoint 999"),
    ],
)
def test_wrong_options_are_one_line(trained, capsys, arguments, text):
    assert main(["models", str(trained.run_folder), *arguments]) == 2
    assert text in capsys.readouterr().err


class Steps:
    """Lets a user act before one of the file operations by which checkpoints are removed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, acts: Callable[[], None], at: int) -> None:
        self.taken = 0
        """How many there were before that one."""
        self._acts = acts
        self._at = at
        for name in ("iterdir", "read_bytes", "exists", "rename"):
            monkeypatch.setattr(Path, name, self._watched(getattr(Path, name)))
        monkeypatch.setattr("shutil.rmtree", self._watched(shutil.rmtree))

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **settings: Any) -> Any:
            if self.taken == self._at:
                self._at = -1
                self._acts()
            self.taken += self._at >= 0
            return call(*arguments, **settings)

        return watched


def pinned_before_step(tmp_path: Path, at: int) -> int:
    """Pin a version before this step of the removal of others. Returns how many steps there were before."""
    said = []

    def acts() -> None:
        with contextlib.suppress(CheckpointError):
            said.append(pin(run, "1"))

    run = run_of(tmp_path, 1, 2, 3)
    with pytest.MonkeyPatch.context() as patched:
        steps = Steps(patched, acts, at)
        prune_checkpoints(run, 1)
    assert not said or 1 in names(run)
    return steps.taken


def test_a_version_that_is_pinned_while_others_are_removed_stays_or_its_user_is_told(tmp_path: Path) -> None:
    count = pinned_before_step(tmp_path / "none", 1_000)
    for at in range(count):
        pinned_before_step(tmp_path / str(at), at)
