"""Means of a minibatch's metrics, summed where they were computed: nothing waits for the device until they are read."""

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["Meter"]


class Meter:
    """Sums named scalars; ``take`` gives their means and starts again."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sum: Tensor | None = None
        self._count = 0

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Add one minibatch's scalars; the names are the same each time."""
        self._names = list(metrics)
        self.add_sum(self._names, torch.stack(list(metrics.values())), 1)

    def add_sum(self, names: list[str], values: Tensor, count: int) -> None:
        """Add the sums ``[k]`` of ``count`` minibatches."""
        self._names = names
        self._sum = values if self._sum is None else self._sum + values
        self._count += count

    def take(self) -> dict[str, float]:
        """The means since the last call; empty if there was nothing."""
        if self._sum is None:
            return {}
        means = (self._sum / self._count).tolist()
        self._sum, self._count = None, 0
        return dict(zip(self._names, means, strict=True))
