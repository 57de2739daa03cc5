"""A crane and the one who operates it: the environment of this project, and the controller that is to be imitated.

Change both into yours. If you have recordings already, you need no controller: see ``record.py``.
"""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

__all__ = ["Crane", "operator"]

STEPS = 80
"""Steps of an episode."""


class Crane(gymnasium.Env[npt.NDArray[np.float32], npt.NDArray[np.float32]]):
    """A trolley on a rail is to stand still above its target. The action is the force, -1 to 1.

    Observes the distance to the target and the speed. The reward of a step is the negative distance, less a little for
    the force.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = Box(-4.0, 4.0, (2,), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
        self.render_mode = render_mode
        self.place = 0.0
        self.target = 0.0
        self.speed = 0.0
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin anywhere on the rail, at rest. ``seed`` seeds ``np_random``, so it repeats the episode."""
        super().reset(seed=seed)
        self.place, self.target = self.np_random.uniform(-1.0, 1.0, 2).tolist()
        self.speed = 0.0
        self.steps = 0
        return self._observe(), {}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """A tenth of a second. The rail ends at -2 and 2."""
        force = float(np.clip(action[0], -1.0, 1.0))
        self.speed = 0.95 * self.speed + 0.1 * force
        self.place = float(np.clip(self.place + 0.1 * self.speed, -2.0, 2.0))
        self.steps += 1
        reward = -abs(self.place - self.target) - 0.01 * force**2
        return self._observe(), reward, False, self.steps >= STEPS, {}

    def render(self) -> npt.NDArray[np.uint8]:
        """A picture ``[height, width, 3]`` for ``penstock watch``: the trolley in blue, its target in red."""
        picture = np.full((60, 160, 3), 255, np.uint8)
        picture[50:53] = 120
        for place, colour in ((self.target, (200, 40, 40)), (self.place, (70, 130, 220))):
            middle = round(80 + 35 * place)
            picture[35:50, middle - 5 : middle + 5] = colour
        return picture

    def _observe(self) -> npt.NDArray[np.float32]:
        return np.array([self.place - self.target, self.speed], np.float32)


def operator(obs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What an operator does: push towards the target, and brake in time. Good, but not the best."""
    distance, speed = obs.tolist()
    return np.array([np.clip(-1.5 * distance - 1.5 * speed, -1.0, 1.0)], np.float32)
