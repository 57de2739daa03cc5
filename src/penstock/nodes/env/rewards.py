"""Rows whose reward is the user's own: it stands where learners read rewards, the environment's beside the rollout.

Returns and lengths of episodes go on being those of the environment; sums of own rewards have a field of their own.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from penstock.envs.finite import BadNumber, not_finite
from penstock.envs.rewards import RewardedSource
from penstock.types import Array, Arrays, StepResult

__all__ = ["OwnRewards"]

Store: TypeAlias = Callable[[int, StepResult], Sequence[int]]
"""Writes a vector step into a rollout; gives the lanes that begin an episode with it."""


class OwnRewards:
    """Writes into rollouts what a source's reward gave.

    Args:
        source: values each step.
        num_steps: T.
    """

    def __init__(self, source: RewardedSource, num_steps: int) -> None:
        self._source = source
        self._environment: Array = np.zeros((num_steps + 1, source.num_lanes), np.float32)

    def beside(self, slot: Arrays) -> Arrays:
        """A slot's arrays with room for the environment's own rewards, which all slots share."""
        return {**slot, "reward": self._environment}

    def storing(self, slot: Arrays, store: Store) -> Store:
        """``store`` of the environment's own rewards, followed by that of the others into ``slot``."""
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
        """The first own reward of a rollout that is NaN or infinite."""
        for t, lane in not_finite(slot["reward"][:num_steps]):
            return BadNumber(t, lane, self._source.reward_name, float(slot["reward"][t, lane]))
        return None
