"""What `pip install penstock` without an extra gives: commands run as a user runs them, and what needs one names it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

EXTRAS = ["ale_py", "dm_env_rpc", "envpool", "grpc", "httptools", "mujoco", "onnxscript", "optuna", "orjson"]
EXTRAS += ["pettingzoo", "prometheus_client", "ray", "tritonclient", "uvloop"]
"""What extras bring, by the names of import."""
HIDE = f"""
from importlib.machinery import PathFinder

found = PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {EXTRAS} else found(name, path, target)

PathFinder.find_spec = find_spec
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment variables of processes in which no package of an extra can be found."""
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "sitecustomize.py").write_text(HIDE)
    return {**os.environ, "PYTHONPATH": str(folder)}


def penstock(without: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(command, env=without, capture_output=True, text=True, check=False, timeout=120)


def test_training_evaluating_and_exporting_need_no_extra(without: Mapping[str, str], tmp_path: Path) -> None:
    small = ["--timesteps", "512", "--num_envs", "2", "--num_workers", "2", "--num_steps", "64", "--eval_episodes", "1"]
    trained = penstock(without, "train", "--env", "CartPole-v1", *small, "--log_dir", str(tmp_path))
    (folder,) = (str(path) for path in tmp_path.iterdir())
    ways = [("eval", folder, "--episodes", "1"), ("export", folder, "--out", str(tmp_path / "policy.onnx"))]
    for done in (trained, *(penstock(without, *words) for words in ways)):
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve", "FOLDER"], "penstock[serve]"),
        (["train", "--env", "ALE/Pong-v5"], "penstock[atari]"),
        (["train", "--env", "CartPole-v1", "--runtime", "ray"], "penstock[ray]"),
        (["tune", "--env", "CartPole-v1", "--search", "lr=loguniform:1e-5:1e-2"], "penstock[ray]"),
        (["train", "--env", "pettingzoo:tests.team_environments"], "penstock[pettingzoo]"),
        (["train", "--env", "gamecore://tests.games.agents:Plain"], "penstock[serve]"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_what_needs_an_extra_says_which(without: Mapping[str, str], words: list[str], extra: str) -> None:
    done = penstock(without, *words)
    assert (done.returncode, extra in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
