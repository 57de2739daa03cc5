"""Tiny environments with a known optimum, which can be learned in seconds, for the tests of all packages.

They are not written for speed, and are no examples of good style: some of them misbehave on purpose.
"""

import random
import time
from collections import deque

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import FrameStackObservation

__all__ = [
    "ClockEnv",
    "ClockVectorEnv",
    "CorridorEnv",
    "DictEnv",
    "EyeEnv",
    "FilmEnv",
    "IdentityEnv",
    "PlantEnv",
    "SlowPendulum",
    "SteeredEyeEnv",
    "TargetEnv",
    "TupleEnv",
    "make_clocks",
    "make_dark_film",
    "make_film",
    "make_many_films",
]


class ClockEnv(gymnasium.Env):
    """Reward 1 for any action, truncated by a clock after 20 steps. The observation is the clock.

    With gamma 0.9 and time limits bootstrapped, every state is worth exactly 1 / (1 - 0.9) = 10.
    """

    LIMIT = 20
    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.steps / self.LIMIT], np.float32), 1.0, False, self.steps >= self.LIMIT, {}


class IdentityEnv(gymnasium.Env):
    """Shows one of four symbols, one-hot; reward 1 for naming it. Best return: 10, in episodes of 10 steps."""

    LENGTH = 10
    observation_space = Box(0.0, 1.0, (4,), np.float32)
    action_space = Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        reward = float(action == self.symbol)
        self.steps += 1
        return self._show(), reward, self.steps >= self.LENGTH, False, {}

    def _show(self):
        self.symbol = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self.symbol]


class TargetEnv(gymnasium.Env):
    """Shows a number in [-1, 1]; the reward is minus its squared distance to the action over 2. Best return: 0."""

    LENGTH = 10
    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        reward = -float((action[0] / 2 - self.target[0]) ** 2)
        self.steps += 1
        return self._show(), reward, self.steps >= self.LENGTH, False, {}

    def _show(self):
        self.target = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.target


class Tank:
    """A part of `PlantEnv`: a level, and the flows that are on their way to it."""

    def __init__(self):
        self.level = 0.0
        self.pipe = deque([0.0] * 5, maxlen=5)


class PlantEnv(gymnasium.Env):
    """An industrial process that never ends. Its state is in objects, arrays and random numbers of two kinds."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self.tanks = [Tank(), Tank()]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.noise = random.Random(int(self.np_random.integers(1 << 30)))
        self.drift = self.np_random.normal(size=4)
        self.alarms = {"low": 0, "high": 0}
        for tank in self.tanks:
            tank.__init__()
        return self._measured(), {}

    def step(self, action):
        self.drift = 0.99 * self.drift + 0.1 * self.np_random.normal(size=4)
        first, second = self.tanks
        first.pipe.append(float(action[0]))
        second.pipe.append(first.level)
        for tank, drift in zip(self.tanks, self.drift[:2], strict=True):
            tank.level = 0.9 * tank.level + 0.1 * tank.pipe[0] + 0.05 * float(drift) + self.noise.gauss(0.0, 0.01)
        self.alarms["low" if second.level < 0 else "high"] += 1
        return self._measured(), -abs(second.level - 0.2), False, False, {}

    def _measured(self):
        return np.array([*(tank.level for tank in self.tanks), self.alarms["high"] / 1000], np.float32)


class CorridorEnv(gymnasium.Env):
    """Eight cells, numbered from 0; 1 goes right, 0 left. Reward -1 a step, the end is cell 7. Best return: -7.

    Truncated after 50 steps.
    """

    LENGTH = 8
    LIMIT = 50
    observation_space = Discrete(LENGTH)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = self.steps = 0
        return self.cell, {}

    def step(self, action):
        self.cell = max(0, self.cell + (1 if action == 1 else -1))
        self.steps += 1
        return self.cell, -1.0, self.cell == self.LENGTH - 1, self.steps >= self.LIMIT, {}


class DictEnv(gymnasium.Env):
    """Shows two dials and which of them counts. Reward 1 for saying whether that dial is positive. Best return: 10."""

    LENGTH = 10
    observation_space = Dict({"which": Discrete(2), "dials": Dict({"a": Box(-1, 1, (1,)), "b": Box(-1, 1, (1,))})})
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        reward = float(action == self.answer)
        self.steps += 1
        return self._show(), reward, self.steps >= self.LENGTH, False, {}

    def _show(self):
        dials = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        which = int(self.np_random.integers(2))
        self.answer = int(dials[which] > 0)
        return {"which": which, "dials": {"a": dials[:1], "b": dials[1:]}}


class TupleEnv(DictEnv):
    """DictEnv as tuples: which dial counts, then the dials and a text about them."""

    observation_space = Tuple((Discrete(2), Tuple((Box(-1, 1, (1,)), Box(-1, 1, (1,)), Dict({"said": Text(9)})))))

    def _show(self):
        obs = super()._show()
        return obs["which"], (obs["dials"]["a"], obs["dials"]["b"], {"said": "two dials"})


class EyeEnv(gymnasium.Env):
    """Shows a small image, all dark or all bright, beside a vector of three; the reward is 1 for saying which."""

    LENGTH = 10
    observation_space = Dict({"eye": Box(0, 255, (12, 12, 3), np.uint8), "speed": Box(-1.0, 1.0, (3,), np.float32)})
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        reward = float((np.asarray(action).item() > 0) == self.bright)
        self.steps += 1
        return self._show(), reward, self.steps >= self.LENGTH, False, {}

    def _show(self):
        self.bright = bool(self.np_random.integers(2))
        noise = self.np_random.integers(0, 100, (12, 12, 3))
        speed = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return {"eye": (noise + 150 * self.bright).astype(np.uint8), "speed": speed}


class SteeredEyeEnv(EyeEnv):
    """The same, where the sign of a number says which."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)


class ClockVectorEnv(gymnasium.vector.VectorEnv):
    """ClockEnv for many lanes at once, in any autoreset mode; lane i is cut after ``limit + i`` steps.

    It hands out the same arrays every time. If autoreset is disabled, it takes a list with one seed for each lane. Each
    episode starts its clock at ``(seed % 4) / 100``.
    """

    def __init__(self, num_envs=1, autoreset_mode=AutoresetMode.NEXT_STEP, limit=ClockEnv.LIMIT):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.mode = AutoresetMode(autoreset_mode) if isinstance(autoreset_mode, str) else autoreset_mode
        self.single_observation_space, self.single_action_space = ClockEnv.observation_space, ClockEnv.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.limits = limit + np.arange(num_envs)
        self.steps = np.zeros(num_envs, np.int64)
        self.phase = np.zeros(num_envs)
        self.obs = np.zeros((num_envs, 1), np.float32)
        self.truncated = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        if seed is not None:
            seeds = np.broadcast_to(seed, self.num_envs)
            self.phase[mask] = (seeds[mask] % 4) / 100
        self.steps[mask] = 0
        self.truncated[mask] = False
        return self._observe(), {}

    def step(self, actions):
        assert not (self.mode is AutoresetMode.DISABLED and self.truncated.any())
        ended = self.truncated.copy()
        self.steps += 1
        self.truncated[:] = self.steps >= self.limits
        rewards, infos = np.ones(self.num_envs), {}
        if self.mode is AutoresetMode.NEXT_STEP:
            self.steps[ended], self.truncated[ended], rewards[ended] = 0, False, 0.0
        elif self.mode is AutoresetMode.SAME_STEP and self.truncated.any():
            infos = {"final_obs": self._observe().copy(), "_final_obs": self.truncated.copy()}
            self.steps[self.truncated] = 0
        return self._observe(), rewards, np.zeros(self.num_envs, np.bool_), self.truncated, infos

    def _observe(self):
        self.obs[:, 0] = self.steps / ClockEnv.LIMIT + self.phase
        return self.obs


def make_clocks(num_envs: int) -> ClockVectorEnv:
    """A factory in the shape that penstock calls with the number of lanes."""
    return ClockVectorEnv(num_envs)


class SlowPendulum(gymnasium.Wrapper):
    """Pendulum with steps of 5 ms. A learner has learned from all rows long before the next ones come."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))

    def step(self, action):
        time.sleep(0.005)
        return super().step(action)


class FilmEnv(gymnasium.Env):
    """Each frame shows its episode, the episode's age and the last action. Reward 3 for action 1.

    So the newest frame determines the whole stack, except for the actions.
    """

    LIMIT = 9
    observation_space = Box(0, 255, (6,), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.film = self.np_random.integers(1, 256, 4)
        self.steps = 0
        return self._frame(0), {}

    def step(self, action):
        self.steps += 1
        return self._frame(action), 3.0 * action, bool(self.np_random.random() < 0.1), self.steps == self.LIMIT, {}

    def _frame(self, action):
        return np.array([*self.film, self.steps, action], np.uint8)


def make_film():
    return FrameStackObservation(FilmEnv(), 4)


def make_dark_film():
    """A film that begins with darkness."""
    return FrameStackObservation(FilmEnv(), 4, padding_type="zero")


def make_many_films(num_envs):
    """Films that are stepped together, and reset themselves in the next step."""
    films = SyncVectorEnv([make_film] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    films.metadata = {**films.metadata, "frame_stack": {"frames": 4, "padding": "first"}}
    return films


class BlinkEnv(gymnasium.Env):
    """Shows a sign at the first step only, and rewards naming it at the last of ``length``: optimum 1, by chance 0.5.

    Only a policy that remembers the sign can name it.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 4) -> None:
        self._length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._sign, self._steps = int(self.np_random.integers(2)), 0
        return np.array([2 * self._sign - 1, 0.0], np.float32), {}

    def step(self, action):
        self._steps += 1
        ended = self._steps == self._length
        reward = float(ended and int(action) == self._sign)
        return np.array([0.0, self._steps / self._length], np.float32), reward, ended, False, {}


class BlinkForeverEnv(BlinkEnv):
    """`BlinkEnv` that never terminates: a time limit truncates it, so that values bootstrap from last observations."""

    def step(self, action):
        obs, reward, ended, _, info = super().step(action)
        return obs, reward, False, ended, info


class RecallEnv(gymnasium.Env):
    """Shows a number at the first step only, and rewards repeating it at each of the three steps behind.

    The reward is minus the squared distance: 0 is the optimum. Without memory -0.27 a step is the best.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._number, self._steps = float(self.np_random.uniform(-0.9, 0.9)), 0
        return np.array([self._number, 0.0], np.float32), {}

    def step(self, action):
        reward = -((float(action[0]) - self._number) ** 2) if self._steps else 0.0
        self._steps += 1
        return np.array([0.0, self._steps / 4], np.float32), reward, self._steps == 4, False, {}


def make_carts(num_envs):
    """CartPole that is stepped together. Its episodes end at different times, and penstock resets them."""
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
