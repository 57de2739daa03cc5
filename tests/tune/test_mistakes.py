"""Mistakes that all trials of a search have in common."""

from pathlib import Path

import pytest

import penstock
from penstock.config.sources import from_mapping
from penstock.errors import ConfigError, DeviceError, EnvError, UsageError
from penstock.processes.starts import Processes
from penstock.tune.mistakes import check_trials
from penstock.tune.search import Search

LR = (Search("lr", "choice", (1e-3, 1e-2)),)


def check(search: tuple[Search, ...] = LR, *, here: bool = True, **settings: object) -> None:
    with Processes() as processes:
        check_trials(from_mapping({"env": "CartPole-v1", **settings}), search, processes, here=here)


def test_an_environment_that_cannot_be_made_is_told_as_train_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "env_with_a_slip.py").write_text("def make(:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    env = "env_with_a_slip:make"
    with pytest.raises(EnvError) as of_train:
        penstock.train({"env": env, "log_dir": str(tmp_path)}, quiet=True)
    with pytest.raises(EnvError) as of_search:
        check(env=env)
    assert str(of_search.value) == str(of_train.value)
    assert "cannot be imported: SyntaxError" in str(of_search.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"algo": "sac"}, "sac needs a Box"),
        ({"algo": "dqn", "capacity": 100}, "--capacity 100 keeps too few rows"),
        ({"precision": "float16"}, "--precision float16 is for GPUs"),
        ({"algo": "bc"}, "bc learns from demonstrations alone"),
    ],
)
def test_settings_that_no_trial_can_have_are_refused(settings: dict[str, object], says: str):
    with pytest.raises(UsageError, match=f"^{says}"):
        check(**settings)


def test_values_that_only_some_trials_have_are_no_mistake_of_all():
    check((Search("capacity", "choice", (100, 100_000)),), algo="dqn", min_rows=1000)
    check((Search("env", "choice", ("CartPole-v1", "Pendulum-v1")),), algo="dqn")
    with pytest.raises(ConfigError, match=r"^--capacity 100 keeps too few rows"):
        check((Search("capacity", "choice", (100, 200)),), algo="dqn")


def test_another_machine_may_have_the_gpu_but_the_environment_is_tried_here(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match="'cuda' is not here"):
        check(device="cuda")
    check(here=False, device="cuda", precision="float16")
    with pytest.raises(EnvError, match="no module named lost_env"):
        check(here=False, device="cuda", env="lost_env:make")
