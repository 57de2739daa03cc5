"""How actions are chosen while experience is collected: how much noise counts, and which are drawn blindly at first.

Plain data and arithmetic, for whoever runs a policy. Runs none, and chooses nothing when actions are greedy.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from penstock.kernels.actions import generate_actions
from penstock.seeding import warmup_seed
from penstock.types import Array, Space

__all__ = ["IN_FULL", "Constant", "Exploration", "Explore", "Falling", "Ladder"]


@dataclass(frozen=True)
class Constant:
    """The same ``explore`` for every lane, always."""

    value: float = 1.0

    def at(self, lanes: Array, num_lanes: int, step: int, horizon: float) -> Array:
        """``explore`` of these lanes: float32 ``[n]``.

        Args:
            lanes: int64 ``[n]``.
            num_lanes: lanes of the whole run.
            step: the lanes' count of steps.
            horizon: steps of a lane in the whole run.
        """
        del num_lanes, step, horizon
        return np.full(len(lanes), self.value, np.float32)


@dataclass(frozen=True)
class Falling:
    """From ``first`` to ``last`` in a straight line over the first ``fraction`` of the run, then ``last``."""

    first: float
    last: float
    fraction: float

    def at(self, lanes: Array, num_lanes: int, step: int, horizon: float) -> Array:
        """As `Constant.at`."""
        del num_lanes
        gone = min(1.0, step / (self.fraction * horizon)) if self.fraction > 0.0 else 1.0
        return np.full(len(lanes), self.first + gone * (self.last - self.first), np.float32)


@dataclass(frozen=True)
class Ladder:
    """Lane i of N explores by ``base^(1 + power i / (N - 1))``: Horgan et al. 2018, https://arxiv.org/abs/1803.00933."""

    base: float
    power: float

    def at(self, lanes: Array, num_lanes: int, step: int, horizon: float) -> Array:
        """As `Constant.at`."""
        del step, horizon
        return (self.base ** (1.0 + self.power * lanes / max(1, num_lanes - 1))).astype(np.float32)


Explore: TypeAlias = Constant | Falling | Ladder
"""The ``explore`` input of ``act`` while experience is collected; greedy evaluation sets 0."""

IN_FULL = Constant()


@dataclass(frozen=True)
class Exploration:
    """The ``explore`` input of ``act``, and the blind actions before it counts, of every lane at every step."""

    explore: Explore
    warmup: int
    """Steps of all lanes together whose actions are drawn uniformly."""
    num_lanes: int
    """Of the whole run."""
    horizon: float
    """Steps of a lane in the whole run."""

    @property
    def moves(self) -> bool:
        """True if ``scale`` depends on the step."""
        return isinstance(self.explore, Falling)

    def scale(self, lanes: Array, step: int) -> Array:
        """``explore`` of these lanes at this step: float32 ``[n]``."""
        return self.explore.at(lanes, self.num_lanes, step, self.horizon)

    def blind(self, step: int) -> bool:
        """True if the actions of this step are drawn without a policy."""
        return step * self.num_lanes < self.warmup

    def generate(self, space: Space, seed: int, lanes: Array, step: int, out: Array) -> None:
        """Write uniform actions ``[n, ...]`` in policy units, keyed by (seed, lane, step) as the policy's noise is."""
        generate_actions(space, warmup_seed(seed), lanes, step, out)
