"""Episodes that other software has recorded become kept episodes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import BadDataError, RunFolderError
from penstock.saved_runs.episodes import list_episodes, read_episode
from penstock.types import Box, Discrete, Spaces

SPACES = Spaces((("obs", Box((2,), "float32", (-1.0,), (1.0,))),), Discrete(3, 0))


def recorded(steps: int = 3) -> dict[str, Any]:
    """An episode whose i-th observation is ``[i / 10, 0]``, in which action i % 3 is paid i."""
    return {
        "obs": np.array([[step / 10, 0.0] for step in range(steps + 1)], np.float32),
        "action": [step % 3 for step in range(steps)],
        "reward": list(range(steps)),
        "terminated": True,
    }


def test_an_iterator_is_written_one_episode_at_a_time_behind_those_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "kept"

    def arriving() -> Iterator[dict[str, Any]]:
        for count in range(3):
            # The one before is written before the next is asked for.
            assert len(list_episodes(folder)) == count
            yield recorded(steps=count + 1)

    assert penstock.write_episodes(folder, arriving()) == folder
    assert penstock.write_episodes(str(folder), [recorded(steps=4)]) == folder
    files = list_episodes(folder)
    assert [file.name for file in files] == [f"episode-{number:08d}.npz" for number in (1, 2, 3, 4)]
    for steps, file in enumerate(files, 1):
        episode = read_episode(file, SPACES)
        np.testing.assert_array_equal(episode.obs["obs"], recorded(steps)["obs"])
        np.testing.assert_array_equal(episode.action, recorded(steps)["action"])
        assert (episode.reward.dtype, episode.reward.tolist()) == (np.float32, list(range(steps)))
        assert (episode.terminated, episode.vanished, episode.agent) == (True, False, "")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reward": None}, "episode 2 has no reward; it has obs, action, terminated"),
        ({"obs": None}, "episode 2 has no obs; it has action, reward, terminated"),
        ({"reward": [0.0, 1.0]}, r"episode 2: its reward is \[2\], and there are 3 actions"),
        ({"obs": np.zeros((3, 2))}, r"its obs is \[3, 2\], and 3 actions have 4 observations: one before each"),
        ({"terminated": [False, False, True]}, r"its terminated is \[3\]; give one truth value"),
        ({"obs": [[0.0], [0.0, 1.0], [0.0], [0.0]]}, "its obs is no array: its rows have different shapes"),
        ({"obs": ["a", "b", "c", "d"]}, "its obs holds <U1, not numbers"),
        ({"obs": np.full((4, 2), np.nan)}, "its obs holds NaN or infinity"),
        ({"observations": np.zeros((4, 2))}, "episode 2 has observations: observations are named obs, or obs.<key>"),
        ({"action": 1}, "its action is a single number"),
    ],
)
def test_an_episode_that_is_not_whole_is_named_and_those_before_it_are_kept(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    wrong = {name: value for name, value in {**recorded(), **change}.items() if value is not None}
    with pytest.raises(BadDataError, match=says):
        penstock.write_episodes(tmp_path, [recorded(), wrong])
    assert len(list_episodes(tmp_path)) == 1
    assert not list(tmp_path.glob("*.partial"))


def test_what_is_no_list_of_episodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match="episode 1 is of type str; give a list of dicts of arrays, one an episode"):
        penstock.write_episodes(tmp_path, recorded())  # type: ignore[arg-type]
    with pytest.raises(BadDataError, match=r"there was no episode to write into .*; an iterator can be read only once"):
        penstock.write_episodes(tmp_path, iter([]))
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RunFolderError, match="file cannot be written: File exists"):
        penstock.write_episodes(file, [recorded()])


def test_a_run_learns_from_what_an_iterator_gave(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    episodes = (
        {
            "obs": generator.uniform(-1.0, 1.0, (21, 3)).astype(np.float32),
            "action": generator.uniform(-2.0, 2.0, (20, 1)).astype(np.float32),
            "reward": generator.uniform(-1.0, 0.0, 20),
            "terminated": False,
        }
        for _ in range(4)
    )
    settings = {
        "env": "Pendulum-v1",
        "algo": "sac",
        "demonstrations": penstock.write_episodes(tmp_path / "kept", episodes),
        "demonstration_share": 1,
        "num_envs": 2,
        "num_workers": 1,
        "hidden_sizes": 8,
        "min_rows": 40,
        "timesteps": 80,
        "eval_episodes": 1,
        "runtime": "inline",
        "log_dir": tmp_path,
    }
    assert penstock.train(settings, quiet=True).steps >= 80
