"""Files of kept episodes."""

from pathlib import Path

import numpy as np
import pytest

from penstock.saved_runs.episodes import KeptEpisode, write_episode


class KilledError(BaseException):
    """Stands for SIGKILL: nobody clears up."""


def test_an_episode_that_is_written_again_leaves_nothing_of_an_attempt_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = np.zeros(1, np.float32)
    episode = KeptEpisode("g", {"obs": np.zeros((2, 1), np.float32)}, row, row, terminated=True, vanished=False)

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patches:
        patches.setattr(Path, "replace", killed)
        with pytest.raises(KilledError):
            write_episode(tmp_path, 3, episode)
    assert [path.name for path in tmp_path.iterdir()] == ["episode-00000003.partial"]
    write_episode(tmp_path, 3, episode)
    assert [path.name for path in tmp_path.iterdir()] == ["episode-00000003.npz"]
