"""A resume with other settings. Settings that may change do, and stay changed. Others are refused in one line."""

import errno
import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli import main
from penstock.config.sources import from_toml
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.saved_runs.launches import SETTINGS
from penstock.saved_runs.leftovers import run_to_resume, take_back_where_it_goes_on, tell_where_it_goes_on
from penstock.saved_runs.parts import parts_of
from penstock.saved_runs.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 24, "mini_batch_size": 32, "eval_episodes": 1}
REPLAY = {"env": "Pendulum-v1", "algo": "sac", "min_rows": 96, "updates_per_step": 0.25, "hidden_sizes": (8, 8)}
BATCH = 24 * 4


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    values = {**SMALL, "runtime": "inline", "log_dir": str(log_dir), "timesteps": updates * BATCH, **settings}
    return penstock.train(values, quiet=True)


def test_changes_by_flags_stay_in_the_config_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path, 2, num_workers=2, lr=1e-3).run_folder
    assert main(["resume", str(run), "--num_workers", "4", "--timesteps", str(4 * BATCH), "--lr", "1e-4"]) == 0
    assert main(["resume", str(run), "--timesteps", str(5 * BATCH)]) == 0
    config = from_toml(run / "config.toml")
    assert (config.run.num_workers, config.run.timesteps, config.algorithm.lr) == (4, 5 * BATCH, 1e-4)
    assert load_checkpoint(find_checkpoint(run)).manifest["steps"] == 5 * BATCH
    before = (run / "config.toml").read_text()
    capsys.readouterr()
    for flag, says in (
        ("--num_envs=8", "because its checkpoints hold the state of each lane"),
        ("--sync_mode=non_blocking", "because its checkpoints hold the lanes as this mode left them"),
        ("--time_steps=8", "unknown flag --time_steps; did you mean --timesteps"),
        ("--num_workers=3", "--num_workers 3 does not divide"),
    ):
        assert main(["resume", str(run), flag]) == 2
        assert says in capsys.readouterr().err
    assert (run / "config.toml").read_text() == before


def test_a_setting_as_a_keyword_is_told_where_it_belongs(tmp_path: Path) -> None:
    says = "resume takes run, checkpoint, .* not runtime; a setting of the run goes into settings"
    with pytest.raises(penstock.ConfigError, match=says):
        penstock.resume(tmp_path, runtime="ray")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({}, {"backend": "eager", "policy_placement": "node"}),
        ({"sync_mode": "non_blocking"}, {"inference": "torch"}),
        (REPLAY, {"learners": 2, "runtime": "local"}),
        (REPLAY, {"table_bytes": 110_000}),
        ({**REPLAY, "sync_mode": "non_blocking"}, {"learners": 2, "runtime": "local", "reuse": 2.0}),
        (
            {**REPLAY, "sync_mode": "non_blocking", "learners": 2, "runtime": "local"},
            {"learners": 1, "runtime": "inline", "capacity": 500, "mini_batch_size": 16},
        ),
    ],
)
def test_a_run_goes_on_in_another_way(tmp_path: Path, first: dict[str, object], then: dict[str, object]) -> None:
    run = train(tmp_path, 4, **first).run_folder
    saved = load_checkpoint(find_checkpoint(run))
    result = penstock.resume(run, timesteps=8 * BATCH, settings=then, quiet=True)
    assert result.run_folder == run
    assert result.steps >= 8 * BATCH
    arrays = load_checkpoint(find_checkpoint(run)).arrays
    assert int(arrays["lane_collected"].sum()) >= 8 * BATCH
    assert int(arrays["update"]) > saved.manifest["update"]
    if "applied" in arrays:
        assert int(arrays["applied"]) == int(arrays["gradient_steps"]) > int(saved.arrays["gradient_steps"]) > 0
    before, after = parts_of(RunFolder(run), from_toml(run / "config.toml").run)
    assert (before.begin, after.begin) == (0, saved.manifest["steps"])
    for name in then.keys() & set(SETTINGS):
        assert getattr(before.run, name) != getattr(after.run, name) == then[name]


def launches(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "launches.jsonl").read_text().splitlines()]


def test_one_command_starts_a_run_and_goes_on_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, network = tmp_path / "pole", tmp_path / "net.toml"
    network.write_text("[trunk]\nhidden_sizes = [8]\n")
    settings = {**SMALL, "runtime": "inline", "log_dir": tmp_path, "num_workers": 2, "model": network}
    line = ["train", "--run_name", "pole", *(f"--{name}={value}" for name, value in settings.items())]
    assert main([*line, f"--timesteps={2 * BATCH}"]) == 0
    assert main([*line, f"--timesteps={3 * BATCH}"]) == 2
    assert f"to go on with it: penstock resume pole --log_dir {tmp_path}, or" in capsys.readouterr().err
    again = [*line, "--resume_if_exists", "true"]
    assert main([*again, f"--timesteps={3 * BATCH}"]) == 0
    assert load_checkpoint(find_checkpoint(run)).manifest["steps"] == 3 * BATCH
    assert main([*again, f"--timesteps={3 * BATCH}"]) == 0
    said = capsys.readouterr().out
    assert "there is a run pole: it goes on" in said
    assert "nothing to do: the run has its 288 timesteps" in said
    assert main([*again, "--seed=7"]) == 2
    assert "--seed cannot become 7" in capsys.readouterr().err
    network.write_text("[trunk]\nhidden_sizes = [9]\n")
    assert main([*again, f"--timesteps={3 * BATCH}"]) == 2
    assert '--model cannot become {"trunk": {"hidden_sizes": [9]}}: a resumed run keeps' in capsys.readouterr().err
    assert [one["checkpoint"] for one in launches(run)] == [None, "update-00000002", "update-00000003"]
    first = launches(run)[0]
    assert (first["command"], first["host"]) == (sys.orig_argv, socket.gethostname())
    assert first["versions"]["penstock"] == penstock.__version__


def test_a_run_of_that_name_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    settings = {**SMALL, "runtime": "inline", "log_dir": tmp_path, "num_workers": 2, "timesteps": BATCH}
    run = train(tmp_path, 1).run_folder.rename(tmp_path / "pole")
    shutil.rmtree(run / "checkpoints" / "update-00000001")
    line = [
        "train",
        "--run_name=pole",
        "--resume_if_exists",
        *(f"--{name}={value}" for name, value in settings.items()),
    ]
    assert main(line) == 0
    assert [one["checkpoint"] for one in launches(run)] == [None]
    assert load_checkpoint(find_checkpoint(run)).manifest["steps"] == BATCH


def test_a_run_of_that_name_is_not_removed_while_it_trains(tmp_path: Path) -> None:
    run = train(tmp_path, 1).run_folder
    shutil.rmtree(run / "checkpoints" / "update-00000001")
    with RunFolder(run).claim(), pytest.raises(penstock.RunFolderError, match="is in use by another process"):
        run_to_resume(str(tmp_path), run.name)
    assert run_to_resume(str(tmp_path), run.name) is None
    assert not run.exists()


def test_what_was_killed_before_it_was_a_run_does_not_keep_its_name(tmp_path: Path) -> None:
    folder = RunFolder.named(tmp_path, "pole")
    folder.make()
    for name in (".lock", ".number", "config.toml.partial"):
        (folder.path / name).touch()
    with folder.claim(), pytest.raises(penstock.RunFolderError, match="is in use by another process"):
        run_to_resume(str(tmp_path), "pole")
    assert run_to_resume(str(tmp_path), "pole") is None
    assert not folder.path.exists()
    folder.make()
    (folder.path / "notes.txt").touch()
    assert run_to_resume(str(tmp_path), "pole") is None
    assert (folder.path / "notes.txt").exists(), "somebody's own file"


def test_a_run_that_goes_on_elsewhere_is_not_gone_on_with_beside_it(tmp_path: Path) -> None:
    old, new, other = (RunFolder(tmp_path / name) for name in ("pole", "pole-2", "cart"))
    for folder, text in ((old, "one\ntwo\n"), (new, "one\n"), (other, "three\n")):
        folder.checkpoints.mkdir(parents=True)
        folder.config_path.touch()
        folder.launches_path.write_text(text)
        (folder.checkpoints / "update-00000001").mkdir()
    for folder in (old, new, other):
        tell_where_it_goes_on(folder, new, "machine 2")
    assert not (new.path / "goes_on_in").exists()
    assert run_to_resume(str(tmp_path), "cart") == other, "a run of its own on the other machine"
    says = rf"^run pole goes on in {new.path}, on machine 2, .* name pole-2, or .* remove .*pole/goes_on_in$"
    with pytest.raises(penstock.RunFolderError, match=says):
        run_to_resume(str(tmp_path), "pole")
    with pytest.raises(penstock.RunFolderError, match=says):
        penstock.resume(old.path)
    # The second machine is lost, too.
    third = RunFolder(tmp_path / "pole-2-2")
    third.path.mkdir()
    third.launches_path.write_text("one\n")
    tell_where_it_goes_on(new, third, "machine 3")
    says = r"goes on in .*pole-2-2, on machine 3, .* remove .*pole/goes_on_in$"
    with pytest.raises(penstock.RunFolderError, match=says):
        run_to_resume(str(tmp_path), "pole")
    (third.path / "goes_on_in").write_bytes(b"\xff")
    with pytest.raises(penstock.RunFolderError, match=r"cannot read .*pole-2-2/goes_on_in: .* remove it$"):
        penstock.resume(old.path)
    take_back_where_it_goes_on(old, other, "machine 2")
    assert (old.path / "goes_on_in").exists()
    take_back_where_it_goes_on(old, new, "machine 2")
    assert run_to_resume(str(tmp_path), "pole") == old


def test_a_log_directory_that_cannot_be_read_is_one_line_where_a_run_is_looked_for(tmp_path: Path, monkeypatch) -> None:
    def refused(path: Path) -> bool:
        raise OSError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(penstock.RunFolderError, match=r"pole: Permission denied; give another --log_dir$"):
        run_to_resume(str(tmp_path), "pole")


def test_a_name_is_given_in_python_too(tmp_path: Path) -> None:
    settings = {**SMALL, "runtime": "inline", "log_dir": str(tmp_path), "timesteps": BATCH, "eval_episodes": 0}
    assert penstock.train(settings, run_name="pole", quiet=True).run_folder == tmp_path / "pole"
    with pytest.raises(penstock.RunFolderError, match="there is a run pole in "):
        penstock.train(settings, run_name="pole", quiet=True)
    with pytest.raises(penstock.ConfigError, match="run_name takes letters, digits"):
        penstock.train(settings, run_name="../pole", quiet=True)
