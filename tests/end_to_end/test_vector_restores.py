"""Vector environments whose lanes penstock resets go on in the middle of all their episodes, bit for bit."""

from pathlib import Path

import pytest

import penstock
from penstock.envs.atari import make_lanes
from penstock.run import Result
from penstock.topologies import training
from tests.children import killing
from tests.end_to_end.film_table import FILM_TABLE
from tests.environments import make_film
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

SMALL = {"num_steps": 24, "epochs": 2, "mini_batch_size": 32, "num_envs": 4, "num_workers": 2, "eval_episodes": 0}
BATCH = 24 * 4
CARTS = "tests.environments:make_carts"


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    values = {**SMALL, "env": CARTS, "runtime": "inline", "log_dir": str(log_dir), **settings}
    return penstock.train({**values, "timesteps": updates * BATCH}, quiet=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Eight updates in one go, of environments that are stepped one by one."""
    return train(tmp_path_factory.mktemp("whole"), 8, env="CartPole-v1")


@pytest.mark.parametrize("runtime", ["inline", "local"])
def test_resumed_equals_uninterrupted(tmp_path, whole: Result, runtime: str) -> None:
    first = train(tmp_path, 3, runtime=runtime)
    second = penstock.resume(first.run_folder, timesteps=8 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == fingerprint(whole)


def test_a_resume_with_another_number_of_workers_gives_the_same(tmp_path, whole: Result) -> None:
    first = train(tmp_path, 5, num_workers=4)
    config = first.run_folder / "config.toml"
    config.write_text(config.read_text().replace("num_workers = 4\n", "num_workers = 1\n"))
    second = penstock.resume(first.run_folder, timesteps=8 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == fingerprint(whole)


def test_a_kill_of_the_environments_changes_no_bit(tmp_path) -> None:
    settings = {"runtime": "local", "save_interval": 4}
    whole = train(tmp_path / "whole", 60, env="CartPole-v1")
    with killing(["env.0", "env.1", "env.0", "env.1"], tmp_path / "killed") as killed:
        result = train(tmp_path / "killed", 60, **settings)
    assert len(killed) >= 2
    assert result.not_restored == 0
    assert fingerprint(result) == fingerprint(whole)


def make_long_and_short(num_envs: int):
    """Lane 0 plays on for 70 steps. The others are shorter."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from tests.environments import ClockEnv

    class LongClock(ClockEnv):
        LIMIT = 70

    envs = [LongClock, *[ClockEnv] * (num_envs - 1)]
    return SyncVectorEnv(envs, autoreset_mode=AutoresetMode.DISABLED)


def test_an_episode_that_is_longer_than_the_log_begins_anew_beside_the_others(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(training, "ACTION_LOG_CAPACITY", 30)
    settings = {"env": f"{__name__}:make_long_and_short", "num_workers": 1}
    # After 48 steps lane 0 has an episode of 48 steps. Those of the others end after 20 and 40.
    first = train(tmp_path, 2, **settings)
    second = penstock.resume(first.run_folder, timesteps=3 * BATCH, quiet=True)
    assert second.not_restored == 1


def make_films(num_envs: int):
    """Films that are stepped together, whose lanes penstock resets."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    films = SyncVectorEnv([make_film] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    films.metadata = {**films.metadata, "frame_stack": {"frames": 4, "padding": "first"}}
    return films


def test_stacks_of_frames_in_a_table_go_on(tmp_path) -> None:
    def play(log_dir: Path, env: str, turns: int) -> Result:
        return penstock.train({**FILM_TABLE, "env": env, "log_dir": str(log_dir), "timesteps": turns * 32}, quiet=True)

    whole = play(tmp_path / "whole", "tests.environments:make_film", 16)
    first = play(tmp_path / "parts", f"{__name__}:make_films", 7)
    second = penstock.resume(first.run_folder, timesteps=16 * 32, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == fingerprint(whole)


def make_breakout(num_envs: int):
    """Breakout with actions that stick. An episode takes FIRE, up to 30 no-ops, and each of its lives."""
    return make_lanes("breakout", num_envs, repeat_action_probability=0.25, episodic_life=True)


ATARI = {"num_steps": 24, "epochs": 1, "mini_batch_size": 48}


# Fifteen seconds each. Shorter: ``tests/envs/test_atari.py``, without a run, and the same run with CartPole.
@pytest.mark.nightly
@pytest.mark.parametrize("env", ["ALE/Pong-v5", f"{__name__}:make_breakout"])
def test_atari_games_go_on_after_a_resume(tmp_path, env: str) -> None:
    settings = {**ATARI, "env": env, "runtime": "local"}
    whole = train(tmp_path / "whole", 5, **settings)
    first = train(tmp_path / "parts", 3, **settings)
    second = penstock.resume(first.run_folder, timesteps=5 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == fingerprint(whole)


@pytest.mark.nightly  # Half a minute. Shorter: the two that the test above names.
def test_atari_games_go_on_after_a_kill(tmp_path) -> None:
    settings = {**ATARI, "env": "ALE/Pong-v5", "runtime": "local", "save_interval": 2}
    whole = train(tmp_path / "whole", 14, **settings)
    with killing(["env.0", "env.1"], tmp_path / "killed") as killed:
        result = train(tmp_path / "killed", 14, **settings)
    assert killed
    assert result.not_restored == 0
    assert fingerprint(result) == fingerprint(whole)
