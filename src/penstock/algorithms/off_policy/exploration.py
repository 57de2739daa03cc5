"""Hyper-parameters of exploration that some algorithms with a table share. Imports no torch."""

from dataclasses import dataclass

from penstock.config.fields import tunable
from penstock.policies.exploration import Ladder

__all__ = ["LadderConfig"]


@dataclass(frozen=True, kw_only=True)
class LadderConfig:
    """How much each lane explores: less from lane to lane.

    Source: Horgan et al. 2018, https://arxiv.org/abs/1803.00933, section 4.1.
    """

    epsilon_base: float = tunable(
        0.4,
        "probability of a random action in the first lane; lane i of N has base^(1 + power i / (N - 1)) "
        "(usual: 0.2 to 0.6)",
        min=0,
        max=1,
    )
    epsilon_power: float = tunable(
        7.0,
        "how much less the last lane explores than the first; its probability is base^(1 + power) (usual: 3 to 10)",
        min=0,
    )

    def ladder(self) -> Ladder:
        """The exploration of all lanes."""
        return Ladder(self.epsilon_base, self.epsilon_power)
