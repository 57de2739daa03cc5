"""How actions are chosen while experience is collected: how much noise counts, and which are drawn blindly at first.

Plain data and arithmetic, for whoever runs a policy. Runs none, and chooses nothing when actions are greedy.
"""

from dataclasses import dataclass

from penstock.explore import Explore, Falling
from penstock.kernels.actions import draw_actions
from penstock.seeding import warmup_seed
from penstock.types import Array, Space

__all__ = ["Exploration"]


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

    def draw(self, space: Space, seed: int, lanes: Array, step: int, out: Array) -> None:
        """Write uniform actions ``[n, ...]`` in policy units, keyed by (seed, lane, step) as the policy's noise is."""
        draw_actions(space, warmup_seed(seed), lanes, step, out)
