"""Small tasks for each kind of action, whose best return is 10 in every episode of 10 steps.

An action that the mask excludes is an error. So a run that ends has never chosen one.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

__all__ = [
    "AimEnv",
    "BitsEnv",
    "DigitsEnv",
    "MaskedAimEnv",
    "PictureEnv",
    "RanksEnv",
    "RanksInObservationEnv",
    "RecalledAimEnv",
    "RecalledRanksEnv",
]

LENGTH = 10


class _Task(gymnasium.Env[Any, Any]):
    """Asks a new question in each step. The reward is the quality of the answer, at most 1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self._quality(action)
        self.steps += 1
        return self._show(), reward, self.steps >= LENGTH, False, self._info()

    def _show(self) -> Any:
        """Ask a new question: its observation."""
        raise NotImplementedError

    def _info(self) -> dict[str, Any]:
        """The info of the latest question."""
        return {}

    def _quality(self, action: Any) -> float:
        """How good an answer to the latest question is."""
        raise NotImplementedError


class RanksEnv(_Task):
    """50 actions, of which 4 are possible in each step.

    A sign is shown. Where it is 1 the highest possible action is best, else the lowest: reward 1, 2/3, 1/3 or 0.
    """

    CHOICES, POSSIBLE = 50, 4
    observation_space: Any = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(CHOICES)

    def _show(self) -> Any:
        self.possible = np.sort(self.np_random.choice(self.CHOICES, self.POSSIBLE, replace=False))
        self.sign = self.np_random.choice([-1.0, 1.0])
        return np.array([self.sign], np.float32)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask()}

    def _mask(self) -> Any:
        return np.isin(np.arange(self.CHOICES), self.possible).astype(np.int8)

    def _quality(self, action: Any) -> float:
        if action not in self.possible:
            raise ValueError(f"action {action} is not one of {self.possible}")
        rank = int(np.flatnonzero(self.possible == action)[0])
        return (rank if self.sign > 0 else self.POSSIBLE - 1 - rank) / (self.POSSIBLE - 1)


class RanksInObservationEnv(RanksEnv):
    """The same with the mask as a part of the observation."""

    observation_space = Dict({"sign": RanksEnv.observation_space, "action_mask": MultiBinary(RanksEnv.CHOICES)})

    def _show(self) -> Any:
        sign = super()._show()
        return {"sign": sign, "action_mask": self._mask()}

    def _info(self) -> dict[str, Any]:
        return {}


class RecalledRanksEnv(RanksEnv):
    """The same with one sign for the whole episode, which only the first step shows. Only memory can tell it later."""

    def _show(self) -> Any:
        shown = super()._show()
        if self.steps == 0:
            self.kept = self.sign
            return shown
        self.sign = self.kept
        return np.zeros_like(shown)


class DigitsEnv(_Task):
    """Shows three digits, one-hot. The reward is the share of those that are named."""

    SIZES = (3, 4, 2)
    observation_space = Box(0.0, 1.0, (sum(SIZES),), np.float32)
    action_space = MultiDiscrete(SIZES)

    def _show(self) -> Any:
        self.digits = self.np_random.integers(0, self.SIZES)
        return np.concatenate([np.eye(size)[one] for size, one in zip(self.SIZES, self.digits, strict=True)]).astype(
            np.float32
        )

    def _quality(self, action: Any) -> float:
        return float((action == self.digits).mean())


class BitsEnv(_Task):
    """Shows six bits. The reward is the share of those that are repeated."""

    observation_space = MultiBinary(6)
    action_space = MultiBinary(6)

    def _show(self) -> Any:
        self.bits = self.np_random.integers(0, 2, 6, np.int8)
        return self.bits

    def _quality(self, action: Any) -> float:
        return float((action == self.bits).mean())


class AimEnv(_Task):
    """Choose the tool that is shown, one-hot, and aim at the place that is shown.

    The reward of the right tool is 1, less the mean squared distance to the place. Of another tool it is 0.
    """

    TOOLS = 3
    observation_space = Box(-1.0, 1.0, (TOOLS + 2,), np.float32)
    action_space: Any = Dict({"tool": Discrete(TOOLS, start=1), "place": Box(-1.0, 1.0, (2,), np.float32)})

    def _show(self) -> Any:
        self.tool = int(self.np_random.integers(self.TOOLS))
        self.place = self.np_random.uniform(-0.9, 0.9, 2)
        return np.concatenate([np.eye(self.TOOLS)[self.tool], self.place]).astype(np.float32)

    def _quality(self, action: Any) -> float:
        return self._aimed(action["tool"] - 1, action["place"])

    def _aimed(self, tool: int, place: Any) -> float:
        return float(1.0 - np.mean((place - self.place) ** 2)) if tool == self.tool else 0.0


class MaskedAimEnv(AimEnv):
    """The same with a Tuple of actions, and a mask that excludes one of the other tools."""

    action_space = Tuple((Discrete(AimEnv.TOOLS), Box(-1.0, 1.0, (2,), np.float32)))

    def _info(self) -> dict[str, Any]:
        mask = np.ones(self.TOOLS, np.int8)
        mask[(self.tool + 1) % self.TOOLS] = 0
        return {"action_mask": (mask, None)}

    def _quality(self, action: Any) -> float:
        tool, place = action
        if tool == (self.tool + 1) % self.TOOLS:
            raise ValueError(f"tool {tool} is not possible")
        return self._aimed(int(tool), place)


class RecalledAimEnv(_Task):
    """Aim in every step at the place that the first step shows. Only memory can tell it later.

    The reward is 1, less the mean squared distance to the place. A policy without memory gets 7.6 of 10 at most.
    """

    observation_space = Box(-1.0, 1.0, (3,), np.float32)
    """1 in the first step, else 0; the place, later 0."""
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def _show(self) -> Any:
        if self.steps:
            return np.zeros(3, np.float32)
        self.place = self.np_random.uniform(-0.9, 0.9, 2)
        return np.array([1.0, *self.place], np.float32)

    def _quality(self, action: Any) -> float:
        return float(1.0 - np.mean((action - self.place) ** 2))


class PictureEnv(_Task):
    """Shows a noisy picture with a bright square in one of its quarters. The reward for naming the quarter is 1."""

    SIDE, SQUARE = 36, 6
    observation_space = Box(0, 255, (SIDE, SIDE, 1), np.uint8)
    action_space = Discrete(4)

    def _show(self) -> Any:
        self.quarter = int(self.np_random.integers(4))
        picture = self.np_random.integers(0, 100, (self.SIDE, self.SIDE, 1), np.uint8)
        half = self.SIDE // 2
        row, column = self.np_random.integers(0, half - self.SQUARE, 2) + np.array(divmod(self.quarter, 2)) * half
        picture[row : row + self.SQUARE, column : column + self.SQUARE] += 100
        return picture

    def _quality(self, action: Any) -> float:
        return float(action == self.quarter)
