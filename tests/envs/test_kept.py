"""Kept episodes as an environment, while the run that keeps them plays on."""

from pathlib import Path

import numpy as np
import pytest

from penstock.envs.kept import KeptEpisodes
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
    env = KeptEpisodes(AGENT, str(tmp_path))
    assert {float(env.reset(seed=seed)[0][0]) for seed in range(20)} == {0.0, 1.0}
    for number in range(2, 6):
        played(files, number)
    assert {float(env.reset(seed=seed)[0][0]) for seed in range(20)} == {4.0, 5.0}
    for path in list_episodes(tmp_path):
        path.unlink()
    with pytest.raises(EnvError, match="has kept no episodes"):
        env.reset(seed=0)
