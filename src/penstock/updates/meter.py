"""Means of metrics over minibatches. Sums stay on the device, so nothing waits for it until they are read."""

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["Meter"]


class Meter:
    """Sums named scalars. ``take`` returns their means and starts again."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], Tensor] = {}
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Add the scalars of one minibatch."""
        self.add_sums(tuple(metrics), torch.stack(list(metrics.values())), 1)

    def add_sums(self, names: tuple[str, ...], sums: Tensor, count: int) -> None:
        """Add the sums ``[len(names)]`` over ``count`` minibatches."""
        before = self._sums.get(names)
        self._sums[names] = sums if before is None else before + sums
        self._counts[names] = self._counts.get(names, 0) + count

    def take(self) -> dict[str, float]:
        """The mean of each scalar since the last call; empty if none was added."""
        totals: dict[str, list[float]] = {}
        for names, sums in self._sums.items():
            for name, total in zip(names, sums.tolist(), strict=True):
                entry = totals.setdefault(name, [0.0, 0])
                entry[0] += total
                entry[1] += self._counts[names]
        self._sums, self._counts = {}, {}
        return {name: total / count for name, (total, count) in totals.items()}
