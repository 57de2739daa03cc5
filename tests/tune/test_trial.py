"""A trial is a run of its own, which can be followed, stopped in order, and continued elsewhere with changes."""

import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config.sources import from_mapping
from penstock.errors import PenstockError
from penstock.metrics.jsonl import JsonLines
from penstock.metrics.report import EVAL_RETURN, FINAL, RETURN, Report
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.saved_runs.run_folder import RunFolder, list_runs
from penstock.tune.trial import TrialRun
from tests.processes.test_warden import alive
from tests.runtime.nodes import wait_until

SMALL = {"env": "CartPole-v1", "num_steps": 32, "num_workers": 1, "save_interval": 2, "eval_episodes": 2, "epochs": 1}


def test_a_trial_is_followed_to_its_end_with_modules_of_the_folder_in_which_the_user_is(tmp_path: Path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "env_of_a_trial.py").write_text(
        "import gymnasium\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    trial = TrialRun(tmp_path / "a", mine)
    trial.train(from_mapping({**SMALL, "env": "env_of_a_trial:make", "timesteps": 512}))
    found = [trial.wait()]
    while not found[-1]["done"]:
        found.append(trial.wait())
    assert found[-1]["update"] == 2
    assert found[-1]["steps"] == 512
    assert found[-1]["evaluation"] > 0
    # A scheduler that sees all steps before the evaluation may stop the trial for nothing.
    assert not any(one["steps"] >= 512 for one in found[:-1])
    assert trial.run_folder is not None


def test_a_trial_reports_evaluations_on_the_way_apart_from_the_final_one(tmp_path: Path):
    run = tmp_path / "CartPole-v1-ppo-20260101-000000"
    run.mkdir()
    (run / "config.toml").write_text("")
    trial, log = TrialRun(tmp_path, Path.cwd()), JsonLines(run)
    log.write(Report(1, 64, 1.0, {RETURN: 20.0}))
    before = trial._latest()
    assert (before["return"], before["validation"]) == (20.0, -math.inf)
    assert "evaluation" not in before
    # An evaluation comes on a line of its own.
    log.write(Report(1, 64, 1.5, {EVAL_RETURN: 30.0}))
    log.write(Report(2, 128, 2.0, {RETURN: 25.0}))
    log.write(Report(3, 192, 3.0, {EVAL_RETURN: 90.0, FINAL: 1.0}))
    found = trial._latest()
    assert (found["return"], found["validation"], found["evaluation"]) == (25.0, 30.0, 90.0)
    log.close()


def test_a_trial_goes_on_as_a_changed_copy_of_another_one(tmp_path: Path):
    strong, weak = TrialRun(tmp_path / "strong", Path.cwd()), TrialRun(tmp_path / "weak", Path.cwd())
    strong.train(from_mapping({**SMALL, "timesteps": 10_000_000}))
    copies = tmp_path / "copies"
    while not strong.checkpoint(copies):
        strong.wait()
    strong.stop()
    (copy,) = copies.iterdir()
    # A table that is too large for checkpoints lies beside them.
    assert strong.run_folder is not None
    (strong.run_folder / "replay.table").write_bytes(b"rows")
    assert strong.checkpoint(tmp_path / "whole")
    assert (tmp_path / "whole" / copy.name / "replay.table").read_bytes() == b"rows"
    # A run that has all its steps already would not begin again. Reports may be behind the checkpoint.
    steps = int(load_checkpoint(find_checkpoint(copy)).arrays["steps"])
    # What the trial did before counts no more, whatever its name.
    begun_before = tmp_path / "weak" / "Zebra-v1-ppo-20260101-000000"
    begun_before.mkdir(parents=True)
    (begun_before / "config.toml").write_text("")
    assert weak.run_folder == begun_before
    weak.resume(copy, {"lr": 0.5, "timesteps": steps + 2048}, steps + 2048)
    while not weak.wait()["done"]:
        pass
    run = weak.run_folder
    assert run is not None
    assert run.name.startswith(copy.name)
    assert RunFolder.open(run).read_config().algorithm.lr == 0.5


def test_a_trial_is_stopped_in_order_although_ray_blocks_sigint(tmp_path: Path):
    trial = TrialRun(tmp_path / "a", Path.cwd())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        trial.train(from_mapping({**SMALL, "timesteps": 10_000_000, "save_interval": 100_000}))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    trial.wait()
    trial.stop()
    assert trial.run_folder is not None
    assert len(list_checkpoints(trial.run_folder)) == 1


FOLLOWED = """
import sys
from pathlib import Path
import psutil
from penstock.config.sources import from_mapping
from penstock.tune.trial import TrialRun
trial = TrialRun(Path(sys.argv[1]), Path.cwd())
trial.train(from_mapping(eval(sys.argv[2])))
trial.wait()
shell = psutil.Process(trial._process.pid)
print(shell.pid, *[child.pid for child in shell.children()], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("children", [False, True])
def test_a_trial_ends_in_order_if_the_process_that_follows_it_is_killed(tmp_path: Path, children: bool):
    """Ray kills the children of a process that it ends, too."""
    settings = {**SMALL, "timesteps": 10_000_000, "save_interval": 100_000}
    command = [sys.executable, "-c", FOLLOWED, str(tmp_path), repr(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        child, run = map(int, follower.stdout.readline().split())
        follower.kill()
        if children:
            os.kill(child, signal.SIGKILL)
    # Whoever takes it over may not reap it.
    assert wait_until(lambda: not alive(run))
    (folder,) = list_runs(tmp_path)
    assert len(list_checkpoints(folder)) == 1


def test_a_run_that_fails_says_why(tmp_path: Path):
    trial = TrialRun(tmp_path / "a", Path.cwd())
    trial.train(from_mapping({**SMALL, "env": "Nothing-v0"}))
    with pytest.raises(PenstockError, match=r"the run of this trial failed: .*Nothing"):
        trial.wait()


def test_a_checkpoint_that_is_pruned_while_it_is_copied_leaves_no_half_copy(tmp_path: Path, monkeypatch):
    trial = TrialRun(tmp_path / "a", Path.cwd())
    trial.train(from_mapping({**SMALL, "timesteps": 512}))
    while not trial.wait()["done"]:
        pass
    copy = shutil.copytree

    def pruned(source: Path, target: Path) -> None:
        copy(source, target)
        raise FileNotFoundError(source)

    monkeypatch.setattr(shutil, "copytree", pruned)
    assert not trial.checkpoint(tmp_path / "copies")
    assert not any((tmp_path / "copies").rglob("*"))
    monkeypatch.undo()
    assert trial.checkpoint(tmp_path / "copies")


def test_a_trial_is_saved_once_it_has_a_checkpoint_and_refuses_if_it_never_has_one(tmp_path: Path):
    trial = TrialRun(tmp_path / "a", Path.cwd())
    trial.train(from_mapping({**SMALL, "timesteps": 2048, "save_interval": 4}))
    # The run has hardly begun.
    trial.save(tmp_path / "copies")
    (copy,) = (tmp_path / "copies").iterdir()
    assert int(load_checkpoint(find_checkpoint(copy)).arrays["steps"]) >= 1024
    trial.stop()
    with pytest.raises(PenstockError, match="it has no checkpoint to go on from; give a smaller --save_interval"):
        TrialRun(tmp_path / "b", Path.cwd()).save(tmp_path / "none")
