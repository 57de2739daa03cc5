"""Writes the episode metrics of episodes that end into rollouts, beside their returns."""

from collections.abc import Sequence

from penstock.metrics.episode_metrics import METRIC_FIELD
from penstock.nodes.env.rewards import Store
from penstock.types import Arrays, EnvSource, StepResult

__all__ = ["EpisodeMetrics"]


class EpisodeMetrics:
    """Writes the episode metrics of a source into rollouts.

    Args:
        source: steps the lanes.
        names: of the metrics.
    """

    def __init__(self, source: EnvSource, names: Sequence[str]) -> None:
        self._names = names
        self._ended = source.follow(names)

    def storing(self, slot: Arrays, store: Store) -> Store:
        """``store``, which lists the episodes that end, followed by writing their metrics beside them into ``slot``."""
        ended, count = self._ended, slot["episode_count"]
        columns = [slot[f"{METRIC_FIELD}{name}"] for name in self._names]

        def store_both(t: int, result: StepResult) -> Sequence[int]:
            begun = store(t, result)
            if ended:
                end = int(count)
                for column, numbers in zip(columns, zip(*ended.values(), strict=True), strict=True):
                    column[end - len(ended) : end] = numbers
            return begun

        return store_both
