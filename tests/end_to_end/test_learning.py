"""Small tasks with a known optimum, trained by whole runs: through the public interface, in one process."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box

import penstock
from penstock.run import Result
from tests.environments import ClockEnv, ClockVectorEnv, IdentityEnv

pytestmark = pytest.mark.usefixtures("shared_templates")


def train(log_dir: Path, env: str, **settings: object) -> Result:
    name = env if ":" in env else f"tests.environments:{env}"
    return penstock.train({"env": name, "runtime": "inline", "log_dir": str(log_dir), **settings}, quiet=True)


class HiddenClockEnv(ClockEnv):
    """Shows a random number instead of the clock. So the last observation has the same value as all others."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(1, np.float32), {}

    def step(self, action):
        _, *rest = super().step(action)
        return (self.np_random.random(1, np.float32), *rest)


class HiddenClockVectorEnv(ClockVectorEnv):
    """The same for many lanes at once."""

    def _observe(self):
        self.obs[:, 0] = np.random.default_rng(self.steps.tolist()).random(self.num_envs)
        return self.obs


def hidden_next_step(num_envs: int) -> ClockVectorEnv:
    return HiddenClockVectorEnv(num_envs, "NextStep")


def hidden_same_step(num_envs: int) -> ClockVectorEnv:
    return HiddenClockVectorEnv(num_envs, "SameStep")


def hidden_disabled(num_envs: int) -> ClockVectorEnv:
    return HiddenClockVectorEnv(num_envs, "Disabled")


# Four seconds each. Shorter: ``tests/envs/test_vector.py`` has every way of resetting lanes.
@pytest.mark.parametrize(
    "env",
    [
        "HiddenClockEnv",
        pytest.param("hidden_next_step", marks=pytest.mark.nightly),
        "hidden_same_step",
        pytest.param("hidden_disabled", marks=pytest.mark.nightly),
    ],
)
def test_time_limits_are_bootstrapped(tmp_path, env: str) -> None:
    """Reward 1, gamma 0.9, cut by a clock after 20 steps: every state is worth 1 / (1 - 0.9) = 10, also the last."""
    settings = {"gamma": 0.9, "lr": 3e-3, "lr_schedule": "linear", "num_steps": 128, "timesteps": 40_000}
    result = train(tmp_path, f"{__name__}:{env}", **settings, eval_episodes=1)
    obs = np.linspace(0.0, 1.0, 21, dtype=np.float32)[:, None]
    value = np.zeros(21, np.float32)
    noise, explore = np.zeros((21, 2), np.float32), np.zeros(21, np.float32)
    result.policy.backend.act({"obs": obs, "noise": noise, "explore": explore}, {"value": value})
    np.testing.assert_allclose(value, 10.0, atol=0.1)


@pytest.mark.parametrize(
    ("env", "optimum", "tolerance"),
    [
        ("IdentityEnv", 10.0, 0.5),
        ("TargetEnv", 0.0, 0.2),
        # Five seconds. Shorter: runs of ``test_observation_fields.py`` see several fields.
        pytest.param("DictEnv", 10.0, 1.0, marks=pytest.mark.nightly),
    ],
)
def test_the_optimum_is_learned(tmp_path, env: str, optimum: float, tolerance: float) -> None:
    settings = {"lr": 2e-3, "lr_schedule": "linear", "num_steps": 64, "timesteps": 40_000, "gamma": 0.9}
    result = train(tmp_path, env, **settings, eval_episodes=50)
    assert result.evaluation is not None
    assert result.evaluation.mean_return == pytest.approx(optimum, abs=tolerance)


def test_a_discrete_observation_is_learned_from(tmp_path) -> None:
    settings = {"lr": 1e-3, "lr_schedule": "linear", "num_steps": 64, "timesteps": 30_000}
    result = train(tmp_path, "CorridorEnv", **settings, eval_episodes=10)
    assert result.evaluation is not None
    assert result.evaluation.mean_return == -7.0


def test_a_run_ends_at_its_target(tmp_path) -> None:
    result = train(tmp_path, "IdentityEnv", lr=3e-3, num_steps=64, timesteps=200_000, target_return=8.0)
    assert result.steps < 200_000


class PictureEnv(IdentityEnv):
    """The symbol as a bright quarter of a picture."""

    observation_space = Box(0, 255, (36, 36, 1), np.uint8)

    def _show(self):
        symbol = int(super()._show().argmax())
        picture = np.zeros((36, 36, 1), np.uint8)
        picture[18 * (symbol // 2) :, 18 * (symbol % 2) :][:18, :18] = 255
        return picture


# Six seconds with torch. Shorter: the other one, and ``tests/inference/test_backends.py``.
@pytest.mark.parametrize("inference", ["onnx", pytest.param("torch", marks=pytest.mark.nightly)])
def test_pictures_are_learned_from(tmp_path, inference: str) -> None:
    settings = {"inference": inference, "lr": 1e-3, "gamma": 0.0, "num_steps": 32, "timesteps": 2048, "epochs": 4}
    result = train(tmp_path, f"{__name__}:PictureEnv", **settings, eval_episodes=5)
    assert result.evaluation is not None
    assert result.evaluation.mean_return > 7.5  # 2.5 without looking
    assert (result.run_folder / "policy.onnx").exists()
