"""Fills batches from several tables, each with its share: own experience and demonstrations. Samples no row itself."""

import math
from collections.abc import Sequence

import numpy as np

from penstock.kernels.noise import uniform
from penstock.replay.sampler import RowSampler
from penstock.types import Array, Arrays

__all__ = ["Mixture"]

_LANE = np.full(1, (1 << 32) - 1)
# No lane of a run has this number, so nothing else uses its noise.


class Mixture:
    """Several samplers, each of which fills a share of every batch.

    A share that is no whole number of rows is rounded up or down at random, keyed by the batch. On average it is exact.
    """

    def __init__(self, samplers: Sequence[RowSampler], weights: Sequence[float]) -> None:
        """Compute the shares.

        Args:
            samplers: their tables have the same fields.
            weights: one for each sampler, at least 0, in any unit.

        Raises:
            ValueError: the numbers of samplers and weights differ, a weight is negative, or all weights are 0.
        """
        total = math.fsum(weights)
        if len(samplers) != len(weights) or min(weights, default=-1.0) < 0.0 or not 0.0 < total < math.inf:
            raise ValueError(f"{len(samplers)} samplers cannot be mixed by weights {list(weights)}")
        self._samplers = list(samplers)
        # The last end is 1, whatever the rounding.
        self._ends = [math.fsum(weights[: number + 1]) / total for number in range(len(weights) - 1)] + [1.0]

    def sample(
        self,
        key: tuple[int, int],
        out: Arrays,
        before: Sequence[Sequence[int] | None] | None = None,
        beta: float = 0.0,
    ) -> tuple[int, ...]:
        """Fill a batch of m rows: first the rows of the first sampler, then those of the next.

        Importance weights are relative to the largest in the part of the same sampler.

        Args:
            key: seed and number of the batch.
            out: as for `penstock.replay.sampler.Sampler.sample`.
            before: for each sampler, as for its ``sample``.
            beta: as for ``sample``.

        Returns:
            Where each part ends: ``[end of the first, ..., m]``.
        """
        size = len(next(iter(out.values())))
        ends = self._parts(key, size)
        begin = 0
        for number, (sampler, end) in enumerate(zip(self._samplers, ends, strict=True)):
            if end > begin:
                part: dict[str, Array] = {name: array[begin:end] for name, array in out.items()}
                sampler.sample((key[0], key[1]), part, None if before is None else before[number], beta)
            begin = end
        return ends

    def _parts(self, key: tuple[int, int], size: int) -> tuple[int, ...]:
        offset = float(uniform(key[0], _LANE, key[1], 1)[0, 0])
        return (*(math.floor(end * size + offset) for end in self._ends[:-1]), size)
