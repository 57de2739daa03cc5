"""The ``explore`` input of ``act`` while experience is collected, as plain data: how it differs by lane and by time."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from penstock.types import Array

__all__ = ["IN_FULL", "Constant", "Explore", "Falling", "Ladder"]


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
