"""Whole runs whose learner is on a GPU: every kind of learner, acting there as well, resume, loading on the CPU."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.types import Arrays

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("shared_templates")]

GPU = {"device": "cuda", "num_workers": 2, "eval_episodes": 2, "eval_seconds": 5.0}
STREAM = {"num_envs": 8, "num_steps": 32, "epochs": 2, "mini_batch_size": 64, "timesteps": 1024}
TABLE = {"timesteps": 2500, "num_envs": 4}
RUNS = [
    {"algo": "ppo", "env": "CartPole-v1", **STREAM, "backend": "eager"},
    {"algo": "ppo", "env": "Pendulum-v1", **STREAM, "backend": "compiled"},
    {"algo": "ppo", "env": "tests.environments:EyeEnv", **STREAM},
    {"algo": "ppo", "env": "tests.environments:EyeEnv", **STREAM, "precision": "float16"},
    {"algo": "ppo", "env": "CartPole-v1", **STREAM, "model": "lstm", "inference": "torch"},
    {"algo": "ppo", "env": "CartPole-v1", **STREAM, "inference": "torch", "policy_placement": "node"},
    {"algo": "ppo", "env": "Pendulum-v1", **STREAM, "model": "tests.torch_networks.own_modules:Frozen"},
    {"algo": "ppo", "env": "Pendulum-v1", **STREAM, "learners": 2, "exchange": "allreduce"},
    {"algo": "ppo", "env": "Pendulum-v1", **STREAM, "accumulate": 2},
    {"algo": "impala", "env": "CartPole-v1", "num_envs": 8, "num_steps": 32, "timesteps": 1024},
    {"algo": "appo", "env": "CartPole-v1", "num_envs": 8, "num_steps": 32, "timesteps": 1024},
    {"algo": "a3c", "env": "CartPole-v1", "timesteps": 512},
    {"algo": "dqn", "env": "CartPole-v1", **TABLE},
    {"algo": "apex", "env": "CartPole-v1", **TABLE, "learners": 2},
    {"algo": "r2d2", "env": "CartPole-v1", **TABLE},
    {"algo": "sac", "env": "Pendulum-v1", **TABLE, "backend": "compiled"},
    {"algo": "td3", "env": "Pendulum-v1", **TABLE, "learners": 2, "exchange": "allreduce", "backend": "eager"},
    {"algo": "dqn", "env": "tests.environments:EyeEnv", **TABLE, "precision": "float16"},
    {"algo": "apex", "env": "CartPole-v1", **TABLE, "learners": 2, "sync_mode": "non_blocking", "precision": "float16"},
    {"algo": "r2d2", "env": "CartPole-v1", **TABLE, "precision": "float16"},
    {"algo": "sac", "env": "Pendulum-v1", **TABLE, "precision": "float16", "backend": "compiled"},
    {"algo": "sac", "env": "Pendulum-v1", **TABLE, "model": "gru", "updates_per_step": 0.1, "precision": "float16"},
    {"algo": "td3", "env": "Pendulum-v1", **TABLE, "learners": 2, "exchange": "allreduce", "precision": "float16"},
    {"algo": "ddpg", "env": "Pendulum-v1", **TABLE, "accumulate": 2, "precision": "float16"},
    {
        "algo": "dsac",
        "env": "Pendulum-v1",
        **TABLE,
        "updates_per_step": 0.25,
        "precision": "float16",
        "backend": "eager",
    },
    {"algo": "dsact", "env": "Pendulum-v1", **TABLE, "precision": "float16"},
]


def train(log_dir: Path, settings: Mapping[str, object]) -> Result:
    return penstock.train(penstock.from_mapping({**GPU, "log_dir": str(log_dir), **settings}), quiet=True)


def learned(result: Result) -> Arrays:
    return load_checkpoint(find_checkpoint(result.run_folder)).arrays


@pytest.mark.parametrize("settings", RUNS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_a_run_reaches_its_end_and_its_policy_can_be_loaded_on_the_cpu(
    tmp_path: Path, settings: Mapping[str, object]
) -> None:
    result = train(tmp_path, settings)
    assert result.steps >= int(str(settings["timesteps"]))
    arrays = learned(result)
    assert all(np.isfinite(values).all() for name, values in arrays.items() if name.startswith(("actor", "critic")))
    penstock.load_policy(result.run_folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"algo": "ppo", "env": "Pendulum-v1", **STREAM},
        {"algo": "ppo", "env": "tests.environments:EyeEnv", **STREAM},
        {"algo": "ppo", "env": "tests.environments:EyeEnv", **STREAM, "precision": "float16"},
        {
            "algo": "sac",
            "env": "Pendulum-v1",
            "num_envs": 4,
            "min_rows": 100,
            "timesteps": 1024,
            "precision": "float16",
        },
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_resume_goes_on_where_the_run_stopped_bit_for_bit(tmp_path: Path, settings: Mapping[str, object]) -> None:
    """With float16 also the scales of losses: a run that began them anew would leave out other steps."""
    settings = {**settings, "seed": 3}
    whole = learned(train(tmp_path / "whole", settings))
    half = train(tmp_path / "half", {**settings, "timesteps": 512})
    resumed = learned(penstock.resume(half.run_folder, timesteps=1024, quiet=True))
    for name in ("actor", *(name for name in whole if name.startswith("loss_scale"))):
        np.testing.assert_array_equal(resumed[name], whole[name])
