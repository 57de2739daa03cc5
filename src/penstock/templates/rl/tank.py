"""A water tank: the environment of this project. Change it into yours.

An environment has two spaces and two methods, in Gymnasium's API:

- ``reset`` begins an episode and gives its first observation.
- ``step`` takes an action, and gives what came of it: observation, reward, terminated, truncated, info.
"""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete

__all__ = ["Tank"]

STEPS = 100
"""Steps of an episode that goes well."""
WANTED = 0.5
"""The level to keep. An empty tank has level 0, a full one level 1."""


class Tank(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """Water flows into a tank, now more and now less. A valve lets it out: closed (0), half open (1) or open (2).

    Observes how far the level is from the wanted one, and how much flows in. The reward of a step is 1 at the wanted
    level, and less the farther the level is from it. A tank that runs dry or over ends the episode.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Discrete(3)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
        self.render_mode = render_mode
        self.level = WANTED
        self.inflow = 0.0
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin with any level that leaves time to act. ``seed`` seeds ``np_random``, so it repeats the episode."""
        super().reset(seed=seed)
        self.level = self.np_random.uniform(0.2, 0.8)
        self.inflow = self.np_random.uniform(0.2, 0.6)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """One minute. The task has no end of its own, so the cut after `STEPS` is a truncation."""
        outflow = 0.5 * int(action) * self.level**0.5
        self.level = float(np.clip(self.level + 0.1 * (self.inflow - outflow), 0.0, 1.0))
        self.inflow = float(np.clip(self.inflow + self.np_random.normal(0.0, 0.02), 0.2, 0.6))
        self.steps += 1
        reward = 1.0 - 2.0 * abs(self.level - WANTED)
        failed = self.level in {0.0, 1.0}
        return self._observe(), reward, failed, self.steps >= STEPS, {}

    def render(self) -> npt.NDArray[np.uint8]:
        """A picture ``[height, width, 3]`` for ``penstock watch``: the water, and the wanted level as a line."""
        picture = np.full((120, 80, 3), 255, np.uint8)
        picture[round(120 * (1.0 - self.level)) :] = (70, 130, 220)
        picture[round(120 * (1.0 - WANTED))] = (200, 40, 40)
        return picture

    def _observe(self) -> npt.NDArray[np.float32]:
        return np.array([self.level - WANTED, self.inflow - 0.4], np.float32)
