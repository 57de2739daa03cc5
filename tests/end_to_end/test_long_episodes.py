"""Episodes that are longer than the action log are restored from snapshots of their environments, bit for bit."""

import itertools
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

import penstock
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.topologies import training
from tests.children import killing
from tests.end_to_end.film_table import FILM_TABLE
from tests.environments import PlantEnv
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"num_steps": 24, "epochs": 2, "mini_batch_size": 32, "num_envs": 4, "num_workers": 2, "eval_episodes": 0}
BATCH = 24 * 4
PLANT = "tests.environments:PlantEnv"


@pytest.fixture(autouse=True)
def short_log(monkeypatch) -> None:
    """The log holds 60 actions: a snapshot is due after 30, so at the end of every second rollout."""
    monkeypatch.setattr(training, "ACTION_LOG_CAPACITY", 60)


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    values = {**SMALL, "env": PLANT, "runtime": "inline", "log_dir": str(log_dir), **settings}
    return penstock.train({**values, "timesteps": updates * BATCH}, quiet=True)


def saved(result: Result) -> dict[str, np.ndarray]:
    return load_checkpoint(find_checkpoint(result.run_folder)).arrays


def learned(result: Result) -> dict[str, str]:
    """The fingerprint without what restores lanes: at which rollout a snapshot is due is no part of the answer."""
    return {name: value for name, value in fingerprint(result).items() if not name.startswith(("snapshots", "actions"))}


@pytest.mark.parametrize(
    ("runtime", "cut"),
    # Four seconds each. Shorter: the first one.
    [("inline", 4), *(pytest.param(*one, marks=pytest.mark.nightly) for one in (("inline", 7), ("local", 6)))],
)
def test_resumed_equals_uninterrupted(tmp_path, runtime: str, cut: int) -> None:
    whole = train(tmp_path / "whole", 10)
    first = train(tmp_path / "parts", cut, runtime=runtime)
    assert saved(first)["snapshots_size"].all()
    second = penstock.resume(first.run_folder, timesteps=10 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert learned(second) == learned(whole)


def test_a_resume_right_after_a_resume_finds_the_snapshots(tmp_path) -> None:
    whole = train(tmp_path / "whole", 9)
    first = train(tmp_path / "parts", 7)
    penstock.resume(first.run_folder, timesteps=8 * BATCH, quiet=True)
    third = penstock.resume(first.run_folder, timesteps=9 * BATCH, quiet=True)
    assert third.not_restored == 0
    assert learned(third) == learned(whole)


def test_a_kill_of_the_environments_changes_no_bit(tmp_path) -> None:
    settings = {"runtime": "local", "save_interval": 4}
    whole = train(tmp_path / "whole", 60, **settings)
    with killing(["env.0", "env.1", "env.0", "env.1"], tmp_path / "killed") as killed:
        result = train(tmp_path / "killed", 60, **settings)
    assert len(killed) >= 2
    assert result.not_restored == 0
    assert learned(result) == learned(whole)


@pytest.mark.nightly  # Six seconds. Shorter: the others, with a lower limit.
def test_an_episode_of_more_than_ten_thousand_steps_goes_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(training, "ACTION_LOG_CAPACITY", 10_000)
    settings = {
        "num_envs": 2,
        "num_steps": 1024,
        "epochs": 1,
        "mini_batch_size": 512,
        "runtime": "inline",
        "env": PLANT,
    }

    def play(log_dir: Path, updates: int) -> Result:
        given = {**settings, "eval_episodes": 0, "log_dir": str(log_dir), "timesteps": updates * 2048}
        return penstock.train(given, quiet=True)

    whole, first = play(tmp_path / "whole", 13), play(tmp_path / "parts", 12)
    # Taken after 5 and 10 rollouts; the last two are played again.
    assert saved(first)["snapshots_position"][:, 2].tolist() == [10 * 1024] * 2
    assert saved(first)["actions_count"].tolist() == [2 * 1024] * 2
    second = penstock.resume(first.run_folder, timesteps=13 * 2048, quiet=True)
    assert second.not_restored == 0
    assert learned(second) == learned(whole)


class Progress:
    """A reward with a state of its own."""

    def __init__(self) -> None:
        self.seen = np.zeros(3, np.float32)
        self.steps = 0

    def step(self, next_obs: np.ndarray) -> float:
        self.seen = 0.5 * self.seen + next_obs
        self.steps += 1
        return float(self.seen.sum()) / self.steps


@pytest.mark.nightly  # Seven seconds. Shorter: the same without a reward of one's own.
def test_a_reward_of_the_users_own_goes_on_as_well(tmp_path) -> None:
    whole = train(tmp_path / "whole", 9, reward=f"{__name__}:Progress")
    first = train(tmp_path / "parts", 7, reward=f"{__name__}:Progress")
    second = penstock.resume(first.run_folder, timesteps=9 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert learned(second) == learned(whole)


class EndlessFilmEnv(gymnasium.Env):
    """Frames of random numbers that the actions move."""

    observation_space = gymnasium.spaces.Box(0, 255, (6,), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.frame = self.np_random.integers(0, 256, 6, np.uint8)
        return self.frame, {}

    def step(self, action):
        self.frame = self.frame + self.np_random.integers(0, 3, 6, np.uint8) * np.uint8(action + 1)
        return self.frame, float(action), False, False, {}


def make_endless_film() -> gymnasium.Env:
    return FrameStackObservation(EndlessFilmEnv(), 4)


def test_stacks_of_frames_in_a_table_go_on(tmp_path) -> None:
    settings = {**FILM_TABLE, "env": f"{__name__}:make_endless_film"}

    def train_from_table(log_dir: Path, turns: int) -> Result:
        return penstock.train({**settings, "log_dir": str(log_dir), "timesteps": turns * 32}, quiet=True)

    whole = train_from_table(tmp_path / "whole", 24)
    first = train_from_table(tmp_path / "parts", 18)
    assert saved(first)["snapshots_size"].all()
    second = penstock.resume(first.run_folder, timesteps=24 * 32, quiet=True)
    assert second.not_restored == 0
    assert learned(second) == learned(whole)


class OpenFileEnv(PlantEnv):
    """Holds something of which there is no copy."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()


class HiddenEnv(PlantEnv):
    """Keeps a part of its state where no snapshot looks."""

    def reset(self, *, seed=None, options=None):
        hidden = [0]

        def count() -> int:
            hidden[0] += 1
            return hidden[0]

        self.count = count
        return super().reset(seed=seed)

    def _measured(self):
        return super()._measured() + np.float32(self.count() % 7)


@pytest.mark.parametrize("env", ["OpenFileEnv", "HiddenEnv"])
def test_without_snapshots_a_long_episode_begins_anew_and_is_counted(tmp_path, env: str) -> None:
    first = train(tmp_path, 5, env=f"{__name__}:{env}")
    assert "snapshots" not in saved(first)
    second = penstock.resume(first.run_folder, timesteps=6 * BATCH, quiet=True)
    assert second.not_restored == 4


def test_without_a_long_episode_a_checkpoint_holds_nothing_of_snapshots(tmp_path) -> None:
    arrays = saved(train(tmp_path, 1))
    assert not [name for name in arrays if name.startswith("snapshots")]
    assert arrays["actions_count"].tolist() == [24] * 4
