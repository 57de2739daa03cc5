"""Writes the user's own rewards into rollouts, in place of the environment's rewards.

Returns and lengths of episodes stay those of the environment. Sums of own rewards have a field of their own.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from penstock.envs.bad_numbers import BadNumber, not_finite
from penstock.envs.rewards import RewardedSource
from penstock.types import Array, Arrays, StepResult

__all__ = ["OwnRewards", "Store"]

Store: TypeAlias = Callable[[int, StepResult], Sequence[int]]
"""Writes a vector step into a rollout. Returns the lanes that begin an episode with it."""


class OwnRewards:
    """Writes the own rewards of a source into rollouts.

    Args:
        source: computes the own reward of each step.
        num_steps: T.
    """

    def __init__(self, source: RewardedSource, num_steps: int) -> None:
        self._source = source
        self._environment: Array = np.zeros((num_steps + 1, source.num_lanes), np.float32)

    def beside(self, slot: Arrays) -> Arrays:
        """A slot's arrays, with ``reward`` replaced by an array for the environment's rewards. All slots share it."""
        return {**slot, "reward": self._environment}

    def storing(self, slot: Arrays, store: Store) -> Store:
        """``store``, which writes the environment's rewards, followed by writing the own rewards into ``slot``."""
        source, reward, shaped, sums = self._source, slot["reward"], self._source.shaped, slot["shaped_return"]
        count = slot["episode_count"]

        def store_both(t: int, result: StepResult) -> Sequence[int]:
            begun = store(t, result)
            reward[t] = shaped
            if source.ended:
                ends = int(count)
                sums[ends - len(source.ended) : ends] = source.ended
            return begun

        return store_both

    def bad(self, slot: Arrays, num_steps: int) -> BadNumber | None:
        """The first NaN or infinity among the own rewards of a rollout."""
        for t, lane in not_finite(slot["reward"][:num_steps]):
            return BadNumber(t, lane, self._source.reward_name, float(slot["reward"][t, lane]))
        return None
