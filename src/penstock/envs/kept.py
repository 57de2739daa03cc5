"""ReplayedEpisodes: plays kept episodes of games again, as an environment. Observations do not depend on the actions.

For an export, which needs observations that the policy has met. It judges no policy.
"""

from pathlib import Path
from typing import Any

import numpy as np

from penstock.envs.fields import field_paths, nested
from penstock.envs.games import agent_class
from penstock.envs.masks import IN_INFO, KEY
from penstock.errors import EnvError
from penstock.types import Arrays

__all__ = ["ReplayedEpisodes"]


class ReplayedEpisodes:
    """One kept episode after the other. The seed of each reset chooses the episode.

    Args:
        agent: ``module:Agent``.
        folder: holds ``episode-*.npz``.

    Raises:
        EnvError: there are none.
    """

    def __init__(self, agent: str, folder: str) -> None:
        found = agent_class(agent)
        self.observation_space = found.observation_space
        self.action_space = found.action_space
        self._paths = field_paths(found.observation_space)
        self._agent = agent
        self._folder = Path(folder)
        self._files = self._listed()
        self._rows: Arrays = {}
        self._t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        del options
        generator = np.random.default_rng(seed)
        while True:
            try:
                self._rows = _rows_of(self._files[int(generator.integers(len(self._files)))])
                break
            except FileNotFoundError:
                # The run plays on, and has removed it: newer ones take its place.
                self._files = self._listed()
        self._t = 0
        return self._now()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The next observation, whatever the action."""
        del action
        self._t += 1
        count = len(next(iter(self._rows.values())))
        is_last = self._t >= count - 1
        self._t = min(self._t, count - 1)
        obs, info = self._now()
        return obs, 0.0, False, is_last, info

    def close(self) -> None:
        """Nothing is open."""

    def _listed(self) -> list[Path]:
        found = sorted(self._folder.glob("episode-*.npz"))
        if not found:
            raise EnvError(
                f"the run of agent {self._agent} has kept no episodes, and games cannot be played for observations: "
                "resume it with --keep_episodes 20, and export it then"
            )
        return found

    def _now(self) -> tuple[Any, dict[str, Any]]:
        row = {name: values[self._t] for name, values in self._rows.items()}
        info = {KEY: row.pop(IN_INFO)} if IN_INFO in row else {}
        return nested((path, row[name]) for name, path in self._paths.items() if name in row), info


def _rows_of(path: Path) -> Arrays:
    """The observations of an episode, with their masks."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files if name.partition(".")[0] in {"obs", KEY}}
