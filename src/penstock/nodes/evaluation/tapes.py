"""Keeps what the policy saw and did in the present episode of each lane. Writes no file."""

import numpy as np

from penstock.saved_runs.episodes import KeptEpisode
from penstock.types import Array, Arrays, StepResult

__all__ = ["Tapes"]


class Tapes:
    """One tape for each lane: the rows of its present episode.

    Args:
        lanes: how many.
        same_step: whether the source resets in the step that ends an episode.
    """

    def __init__(self, lanes: int, *, same_step: bool) -> None:
        self._same_step = same_step
        self._obs: list[list[Arrays]] = [[] for _ in range(lanes)]
        self._action: list[list[Array]] = [[] for _ in range(lanes)]
        self._reward: list[list[float]] = [[] for _ in range(lanes)]

    def acted(self, obs: Arrays, action: Array) -> None:
        """Keep observations and actions before a step. The source overwrites both.

        Args:
            obs: field -> ``[B, ...]``.
            action: ``[B, ...]`` in the environment's units.
        """
        for lane, (seen, done) in enumerate(zip(self._obs, self._action, strict=True)):
            seen.append({field: values[lane].copy() for field, values in obs.items()})
            done.append(action[lane].copy())

    def stepped(self, result: StepResult) -> None:
        """Keep the rewards of a step. A lane that the source only reset keeps nothing."""
        for lane, reward in enumerate(result.reward.tolist()):
            if result.reset[lane]:
                self.clear(lane)
            else:
                self._reward[lane].append(reward)

    def clear(self, lane: int) -> None:
        """Forget a lane's episode."""
        for tape in (self._obs, self._action, self._reward):
            tape[lane].clear()

    def taken(self, lane: int, result: StepResult, name: str) -> KeptEpisode:
        """The episode of a lane that ends with this step. Its tape is empty then.

        Args:
            lane: its episode has at least one step.
            result: of the step that ended it.
            name: of the episode.
        """
        last = result.final_obs if self._same_step else result.obs
        rows = [*self._obs[lane], {field: last[field][lane] for field in self._obs[lane][0]}]
        kept = KeptEpisode(
            name,
            {field: np.stack([row[field] for row in rows]) for field in rows[0]},
            np.stack(self._action[lane]),
            np.array(self._reward[lane], np.float32),
            terminated=bool(result.terminated[lane]),
            vanished=False,
        )
        self.clear(lane)
        return kept
