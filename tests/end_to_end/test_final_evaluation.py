"""What a run leaves where its final evaluation does not come to an end."""

from pathlib import Path

import pytest

import penstock
from penstock.errors import EnvError
from tests.environments import ClockEnv

SMALL = {"env": "CartPole-v1", "num_steps": 8, "num_envs": 2, "num_workers": 1, "epochs": 1, "mini_batch_size": 8}


def test_an_interrupted_evaluation_loses_neither_the_policy_nor_the_card(tmp_path: Path, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.evaluation.play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        penstock.train({**SMALL, "timesteps": 16, "runtime": "inline", "log_dir": str(tmp_path)}, quiet=True)
    (folder,) = tmp_path.iterdir()
    assert (folder / "policy.onnx").exists()
    assert "not evaluated" in (folder / "README.md").read_text()


def test_the_card_says_what_the_evaluation_came_to(tmp_path: Path) -> None:
    values = {**SMALL, "timesteps": 16, "runtime": "inline", "log_dir": str(tmp_path), "eval_episodes": 3}
    result = penstock.train(values, quiet=True)
    assert "over 3 greedy episodes" in (result.run_folder / "README.md").read_text()


class EndlessEnv(ClockEnv):
    """No episode of it ends."""

    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


def test_an_evaluation_whose_episodes_do_not_end_is_given_up_and_said(tmp_path: Path) -> None:
    values = {**SMALL, "env": f"{__name__}:EndlessEnv", "timesteps": 16, "runtime": "inline", "log_dir": str(tmp_path)}
    result = penstock.train({**values, "stall_timeout": 1.0}, quiet=True)
    assert result.evaluation is None
    assert not result.interrupted
    (note,) = result.notes
    assert note.startswith("the evaluation was given up: no episode of ")
    assert note.endswith("has ended for 1 s (--stall_timeout); 0 had before")
    assert (result.run_folder / "policy.onnx").exists()
    with pytest.raises(EnvError, match="the evaluation was given up"):
        penstock.evaluate(result.run_folder, episodes=1)
