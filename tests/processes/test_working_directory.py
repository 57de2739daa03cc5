"""A process whose working directory was removed goes on in another one."""

import os
from pathlib import Path

import pytest

import penstock
from penstock.processes.working_directory import leave_removed_directory

RUN = {"algo": "dqn", "env": "CartPole-v1", "backend": "eager", "min_rows": 64, "mini_batch_size": 16}
RUN = {**RUN, "num_envs": 1, "num_steps": 8, "timesteps": 128, "eval_episodes": 0}


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is not there any more."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    place.rmdir()
    return place


def test_one_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    leave_removed_directory()
    assert Path.cwd() == tmp_path


def test_one_that_was_removed_is_left_for_the_root(removed: Path) -> None:
    leave_removed_directory()
    assert Path.cwd() == Path("/")


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="only Linux remembers the path")
def test_one_that_was_made_anew_is_found_again(removed: Path) -> None:
    removed.mkdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()  # noqa: PTH109
    leave_removed_directory()
    assert Path.cwd() == removed


# Without that, torch's first product of matrices ended the learner: "process learner ended with status 2".
@pytest.mark.usefixtures("removed")
def test_a_run_learns_although_its_working_directory_was_removed(tmp_path: Path) -> None:
    result = penstock.train(penstock.from_mapping({**RUN, "log_dir": str(tmp_path / "logs")}), quiet=True)
    assert result.steps == RUN["timesteps"]
