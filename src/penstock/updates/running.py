"""The running statistics of the batches that a learner from a stream takes. Imports no torch."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from penstock.ops.statistics import VALUE_STATISTICS, same_values
from penstock.policies import PolicyGraph
from penstock.types import Array, Arrays

__all__ = ["RunningStatistics"]


class RunningStatistics:
    """Statistics of values change before their batch is learned from. All others change after it.

    - If a batch's targets were learned in the units of the batches before it, gradients would be large while these
      units are still wrong. An optimizer with moments remembers such gradients.
    - The policy that acted saw observations normalised by the old statistics. The passes over its batch must do so too.

    Args:
        policy: of which statistics are kept.
        merge: as `penstock.algorithm.Algorithm.statistics`.
    """

    def __init__(self, policy: PolicyGraph, merge: Callable[[Any, Any], Any]) -> None:
        self._policy = policy
        self._merge = merge
        self._held_back: Arrays = {}

    def merged(
        self, state: Mapping[str, Array], rollouts: Iterable[Mapping[str, Array]], *, learned: bool = False
    ) -> Arrays:
        """Merge the statistics of a batch.

        Args:
            state: as it is.
            rollouts: with their targets; merged in this order.
            learned: the batch is learned from already.

        Returns:
            What changes at once: statistics of values, and the last layer of their network, so that values stay as
            they are. A layer that has learned nothing yet is left alone.
        """
        merged: Arrays = {}
        for rollout in rollouts:
            merged |= self._merge(_Changed(state, merged), rollout)
        values = {name: merged.pop(name) for name in VALUE_STATISTICS if name in merged}
        self._held_back = merged
        if values and not learned and state["value_count"] == 0:
            # The layer is new and its values lie around 0, which now means the mean.
            return values
        return values | same_values(self._policy, state, _Changed(state, values))

    def held_back(self) -> Arrays:
        """What changes in the state once that batch is learned from."""
        held_back, self._held_back = self._held_back, {}
        return held_back


class _Changed(Mapping[str, Array]):
    """A state, some arrays of which are replaced."""

    def __init__(self, state: Mapping[str, Array], replaced: Mapping[str, Array]) -> None:
        self._state = state
        self._replaced = replaced

    def __getitem__(self, name: str) -> Array:
        return self._replaced[name] if name in self._replaced else self._state[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)
