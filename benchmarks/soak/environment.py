"""Pendulum-v1 whose environments start processes of their own, as simulators do. These processes only wait.

Its name is `benchmarks.soak.environment:attended`. A process that an environment has started must end with the
environment's process.
"""

import itertools
import subprocess

import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.wrappers import TimeLimit

ATTENDANT = "sleep"
"""The system's name for the process that each environment starts."""
EPISODE = 200
_number = itertools.count()


class Attended(PendulumEnv):
    """Pendulum, and a sleeping process. Every second one has its own group, so a signal to the parent's misses it."""

    def __init__(self) -> None:
        super().__init__()
        apart = next(_number) % 2 == 1
        # It must not hold the descriptors of its environment's process.
        self._attendant = subprocess.Popen([ATTENDANT, "86400"], stdin=subprocess.DEVNULL, start_new_session=apart)

    def close(self) -> None:
        """End the process, too."""
        self._attendant.kill()
        self._attendant.wait()
        super().close()


def attended() -> gymnasium.Env:
    """One environment, cut after 200 steps like Pendulum-v1."""
    return TimeLimit(Attended(), EPISODE)
