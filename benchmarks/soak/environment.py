"""Pendulum-v1 whose environments have started processes of their own, as simulators do; each waits for its end.

Named `benchmarks.soak.environment:attended`. What an environment has started has to end with its process.
"""

import itertools
import subprocess

import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.wrappers import TimeLimit

ATTENDANT = "sleep"
"""What the system calls the process that each environment starts."""
EPISODE = 200
_number = itertools.count()


class Attended(PendulumEnv):
    """Pendulum, and a process that sleeps: every second one in a session of its own, so that no group reaches it."""

    def __init__(self) -> None:
        super().__init__()
        apart = next(_number) % 2 == 1
        # It must not hold what its environment's process was given.
        self._attendant = subprocess.Popen([ATTENDANT, "86400"], stdin=subprocess.DEVNULL, start_new_session=apart)

    def close(self) -> None:
        """End the process, too."""
        self._attendant.kill()
        self._attendant.wait()
        super().close()


def attended() -> gymnasium.Env:
    """One environment, cut after 200 steps like Pendulum-v1."""
    return TimeLimit(Attended(), EPISODE)
