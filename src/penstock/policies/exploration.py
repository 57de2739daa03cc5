"""How actions explore while experience is collected: how much noise counts, and which first actions are random.

Plain data and arithmetic. Runs no policy. Greedy evaluation does not use it.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from penstock.kernels.actions import generate_actions
from penstock.seeding import warmup_seed
from penstock.types import ActionSpace, Array

__all__ = ["IN_FULL", "Constant", "Exploration", "Explore", "Falling", "Ladder"]


@dataclass(frozen=True)
class Constant:
    """The same ``explore`` for every lane at every step."""

    value: float = 1.0

    def at(self, lanes: Array, num_lanes: int, step: int, horizon: float) -> Array:
        """``explore`` of these lanes: float32 ``[n]``.

        Args:
            lanes: int64 ``[n]``, lane numbers.
            num_lanes: number of lanes of the whole run.
            step: number of the lanes' step.
            horizon: number of steps of a lane in the whole run.
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
        """As for `Constant.at`."""
        del num_lanes
        gone = min(1.0, step / (self.fraction * horizon)) if self.fraction > 0.0 else 1.0
        return np.full(len(lanes), self.first + gone * (self.last - self.first), np.float32)


@dataclass(frozen=True)
class Ladder:
    """Lane i of N explores by ``base^(1 + power i / (N - 1))``: Horgan et al. 2018, https://arxiv.org/abs/1803.00933."""

    base: float
    power: float

    def at(self, lanes: Array, num_lanes: int, step: int, horizon: float) -> Array:
        """As for `Constant.at`."""
        del step, horizon
        return (self.base ** (1.0 + self.power * lanes / max(1, num_lanes - 1))).astype(np.float32)


Explore: TypeAlias = Constant | Falling | Ladder
"""The ``explore`` input of ``act`` while experience is collected. Greedy evaluation sets it to 0."""

IN_FULL = Constant()


@dataclass(frozen=True)
class Exploration:
    """The ``explore`` input of ``act`` for every lane at every step, and the random actions before a policy acts."""

    explore: Explore
    warmup: int
    """Number of first steps, of all lanes together, whose actions are uniform random."""
    num_lanes: int
    """Number of lanes of the whole run."""
    horizon: float
    """Number of steps of a lane in the whole run."""

    @property
    def moves(self) -> bool:
        """True if ``scale`` depends on the step."""
        return isinstance(self.explore, Falling)

    def scale(self, lanes: Array, step: int) -> Array:
        """``explore`` of these lanes at this step: float32 ``[n]``."""
        return self.explore.at(lanes, self.num_lanes, step, self.horizon)

    def blind(self, step: int) -> bool:
        """True if the actions of this step are random and need no policy."""
        return step * self.num_lanes < self.warmup

    def generate(
        self, space: ActionSpace, seed: int, lanes: Array, step: int, out: Array, *, mask: Array | None = None
    ) -> None:
        """Write uniform random actions ``[n, ...]`` in policy units. (seed, lane, step) is their key, as for noise.

        With a mask ``[n, choices]`` they are uniform among the choices that are possible.
        """
        generate_actions(space, warmup_seed(seed), lanes, step, out, mask=mask)
