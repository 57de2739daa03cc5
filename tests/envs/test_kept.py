"""Kept episodes as an environment, while the run that keeps them plays on."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import penstock
from penstock.envs.kept import ReplayedEpisodes
from penstock.errors import EnvError
from penstock.saved_runs.episodes import EpisodeFiles, KeptEpisode, list_episodes

AGENT = "tests.games.agents:Plain"


def played(files: EpisodeFiles, number: float) -> None:
    """Keep an episode that sees this number."""
    obs = np.full((3, 1), number, np.float32)
    files.add(KeptEpisode("g", {"obs": obs}, np.zeros(2, np.int64), np.zeros(2, np.float32), True, False))


def test_episodes_that_the_run_removes_meanwhile_are_followed_by_newer_ones(tmp_path: Path) -> None:
    files = EpisodeFiles(tmp_path, keep=2)
    for number in range(2):
        played(files, number)
    env = ReplayedEpisodes(AGENT, str(tmp_path))
    assert {float(env.reset(seed=seed)[0][0]) for seed in range(20)} == {0.0, 1.0}
    for number in range(2, 6):
        played(files, number)
    assert {float(env.reset(seed=seed)[0][0]) for seed in range(20)} == {4.0, 5.0}
    for path in list_episodes(tmp_path):
        path.unlink()
    with pytest.raises(EnvError, match="has kept no episodes"):
        env.reset(seed=0)


class Named(penstock.Agent):
    """Sees a Dict whose keys have dots and digits, and a Tuple."""

    NUMBER = Box(-1000, 1000, (1,), np.float32)
    observation_space = Dict({"pos.x": NUMBER, "0": NUMBER, "pair": Tuple((NUMBER, NUMBER))})
    action_space = Discrete(4)


def test_fields_are_seen_under_the_keys_of_their_space(tmp_path: Path) -> None:
    numbers = {"obs.pos.x": 1.0, "obs.0": 2.0, "obs.pair.0": 3.0, "obs.pair.1": 4.0}
    obs = {name: np.full((3, 1), number, np.float32) for name, number in numbers.items()}
    episode = KeptEpisode("g", obs, np.zeros(2, np.int64), np.zeros(2, np.float32), True, False)
    EpisodeFiles(tmp_path, keep=1).add(episode)
    seen, _ = ReplayedEpisodes(f"{__name__}:Named", str(tmp_path)).reset(seed=0)
    assert seen == {"pos.x": [1.0], "0": [2.0], "pair": {0: [3.0], 1: [4.0]}}
