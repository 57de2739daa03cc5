"""Tests of the environment, the operator and the recordings: ``python -m pytest``."""

from pathlib import Path

import numpy as np
from crane import STEPS, Crane
from gymnasium.utils.env_checker import check_env
from record import played, write

import penstock


def test_it_keeps_the_rules_of_gymnasium() -> None:
    check_env(Crane(), skip_render_check=True)


def test_it_can_be_filmed() -> None:
    env = Crane("rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (60, 160, 3)


def test_the_operator_ends_above_the_target() -> None:
    for seed in range(5):
        obs, _, _ = played(seed)
        assert abs(obs[-1, 0]) < 0.2


def test_a_recording_holds_what_penstock_reads(tmp_path: Path) -> None:
    episode = played(seed=0)
    with np.load(write(tmp_path, 1, *episode)) as file:
        shapes = {name: values.shape for name, values in file.items()}
    assert shapes == {
        "obs": (STEPS + 1, 2),
        "action": (STEPS, 1),
        "reward": (STEPS,),
        "terminated": (),
        "vanished": (),
        "session": (),
    }


def test_penstock_takes_the_settings() -> None:
    config = penstock.from_toml(Path(__file__).with_name("train.toml"))
    assert config.run.env == "crane:Crane"
    assert config.run.demonstrations == ("demonstrations",)
