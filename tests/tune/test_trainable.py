"""A run as a trainable of Ray Tune."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.flags import tune_from_arguments
from penstock.config.sources import from_mapping
from penstock.errors import ConfigError, PenstockError
from penstock.tune.schedulers import saved_often
from penstock.tune.trainable import config_with, trainable
from penstock.tune.trial import TrialRun
from tests.tune.small import SMALL


def test_a_trial_takes_over_the_steps_of_another_one(tmp_path: Path):
    config = saved_often(from_mapping({**SMALL, "timesteps": 1_000_000, "num_workers": 1}), ())
    made = trainable(config, tmp_path / "trials")
    strong, weak, third = (made(config={"lr": lr}) for lr in (1e-3, 1e-2, 1e-1))
    for trial, name in ((strong, "strong"), (weak, "weak"), (third, "third")):
        trial._trial = TrialRun(tmp_path / name, Path.cwd())
    strong.step()
    (tmp_path / "saved").mkdir()
    strong.save_checkpoint(str(tmp_path / "saved"))
    strong.cleanup()
    weak.load_checkpoint(str(tmp_path / "saved"))
    # The log that came with the checkpoint may lack its last lines.
    assert any(weak.step()["update"] >= config.run.save_interval for _ in range(3))
    weak.cleanup()
    (tmp_path / "empty").mkdir()
    with pytest.raises(PenstockError, match="has left no checkpoint"):
        third.load_checkpoint(str(tmp_path / "empty"))


def test_a_relative_folder_is_meant_from_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    made = trainable(from_mapping(SMALL), Path("mine"))
    # Ray Tune goes to a folder of its own before it begins a trial.
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = made(config={})
    assert run.step()["update"] >= 0
    run.cleanup()
    assert [path.parent for path in tmp_path.glob("mine/*/trial.toml")] == [tmp_path / "mine" / run.trial_id]


def test_what_the_user_gave_holds_for_all_algorithms_also_if_it_is_the_default_of_one() -> None:
    _, config, given = tune_from_arguments(["--env", "Pendulum-v1", "--algo", "sac", "--lr", "0.0003"])
    assert config_with(config, {"algo": "td3"}, given).algorithm.lr == 0.0003
    assert config_with(config, {"algo": "td3"}).algorithm.lr == 0.001
    _, config, given = tune_from_arguments(["--env", "Pendulum-v1", "--algo", "ppo", "--clip_param", "0.2"])
    with pytest.raises(ConfigError, match="clip_param"):
        config_with(config, {"algo": "sac"}, given)


def test_what_follows_from_other_settings_follows_in_each_trial() -> None:
    _, config, given = tune_from_arguments(["--env", "CartPole-v1", "--algo", "a2c"])
    alone = from_mapping({"env": "CartPole-v1", "algo": "a2c", "model": "lstm", "num_workers": 1})
    assert config_with(config, {"model": "lstm"}, given) == alone
    assert config_with(config, {"num_workers": 3}, given).run.num_envs == 9


def test_a_search_over_algorithms_gives_each_its_own_defaults() -> None:
    config = from_mapping({"env": "Pendulum-v1", "algo": "ppo", "gamma": 0.9})
    found = config_with(config, {"algo": "sac"})
    assert (found.run.algo, found.algorithm.gamma) == ("sac", 0.9)
    assert found.algorithm == replace(from_mapping({"env": "Pendulum-v1", "algo": "sac"}).algorithm, gamma=0.9)
    with pytest.raises(ConfigError, match="clip_param"):
        config_with(from_mapping({"env": "Pendulum-v1", "algo": "ppo", "clip_param": 0.1}), {"algo": "sac"})
