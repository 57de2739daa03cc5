"""Tests of the environment and of the settings: ``python -m pytest``. Run them before a long training."""

from pathlib import Path

import numpy as np
from gymnasium.utils.env_checker import check_env
from tank import STEPS, Tank

import penstock


def played(seed: int, action: int) -> list[float]:
    """The rewards of an episode in which the action is always the same."""
    env = Tank()
    env.reset(seed=seed)
    rewards, ended = [], False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(np.int64(action))
        assert env.observation_space.contains(obs)
        rewards.append(reward)
        ended = terminated or truncated
    return rewards


def test_it_keeps_the_rules_of_gymnasium() -> None:
    check_env(Tank(), skip_render_check=True)


def test_it_can_be_filmed() -> None:
    env = Tank("rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (120, 80, 3)


def test_a_seed_repeats_an_episode() -> None:
    assert played(seed=1, action=1) == played(seed=1, action=1) != played(seed=2, action=1)


def test_a_closed_valve_lets_the_tank_run_over() -> None:
    assert len(played(seed=3, action=0)) < STEPS


def test_a_reward_is_at_most_1() -> None:
    assert max(played(seed=4, action=2)) <= 1.0


def test_penstock_takes_the_settings() -> None:
    config = penstock.from_toml(Path(__file__).with_name("train.toml"))
    assert config.run.env == "tank:Tank"
