"""Environments whose only cost is a sleep, so that cores do not limit how many of them run side by side.

They are named `benchmarks.sleeping:fixed`, `:varying` and `:lasting`. Nothing can be learned in them.
"""

import time
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

FIXED_S = 0.005
SHORTEST_S, LONGEST_S = 0.001, 0.01
NUMBERS = 4
"""Of an observation, where nothing else is said."""
ROLLOUT = 32
"""Number of vector steps with the same varying sleep: one rollout of the benchmarks that use it."""
EPISODE = 64
APART = 4
"""Workers whose lasting sleeps differ: the last one's is ten times as long as the first one's."""


class Sleeping(gymnasium.vector.VectorEnv):
    """Sleeps once in each vector step. Every lane's episode ends after 64 steps and begins anew in the same step.

    Args:
        num_envs: lanes.
        seconds: how long to sleep, a value for each vector step.
        numbers: of an observation; all are 0.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  # as the base class has it

    def __init__(self, num_envs: int, seconds: Iterator[float], numbers: int = NUMBERS) -> None:
        self.num_envs = num_envs
        self.single_observation_space = Box(-1.0, 1.0, (numbers,), np.float32)
        self.single_action_space = Discrete(2)
        self._seconds = seconds
        self._steps = 0
        self._obs = np.zeros((num_envs, numbers), np.float32)
        self._reward = np.ones(num_envs, np.float32)
        self._never, self._all = np.zeros(num_envs, np.bool_), np.ones(num_envs, np.bool_)

    def reset(self, **_seed_and_options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin every episode, without a sleep."""
        self._steps = 0
        return self._obs, {}

    def step(self, _actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Sleep; the actions change nothing."""
        time.sleep(next(self._seconds))
        self._steps += 1
        ended = self._steps % EPISODE == 0
        return self._obs, self._reward, self._all if ended else self._never, self._never, {}


def fixed(num_envs: int, numbers: int = NUMBERS) -> Sleeping:
    """Each vector step sleeps 5 ms. ``numbers`` is the size of an observation."""
    return Sleeping(num_envs, repeat(FIXED_S), numbers)


def varying(num_envs: int, seed: int) -> Sleeping:
    """Each vector step sleeps a time that is random for each rollout, log-uniform over 1 to 10 ms."""
    return Sleeping(num_envs, drawn(seed))


def lasting(num_envs: int, seed: int) -> Sleeping:
    """Each vector step sleeps a time that its worker keeps: 1, 2.2, 4.6 and 10 ms for workers 0 to 3.

    Args:
        num_envs: lanes, the same number for each worker.
        seed: the run's seed and the worker's first lane, added. So the run's seed has to be 0.
    """
    return Sleeping(num_envs, repeat(kept(seed // num_envs % APART)))


def kept(worker: int) -> float:
    """The lasting sleep of a worker, in seconds."""
    return float(SHORTEST_S * (LONGEST_S / SHORTEST_S) ** (worker / (APART - 1)))


def drawn(seed: int) -> Iterator[float]:
    """The sleep of each vector step, in seconds."""
    random = np.random.default_rng(seed)
    while True:
        yield from repeat(float(np.exp(random.uniform(np.log(SHORTEST_S), np.log(LONGEST_S)))), ROLLOUT)
