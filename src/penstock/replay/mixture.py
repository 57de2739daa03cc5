"""Batches out of several tables, each with its share: demonstrations next to own experience. Samples no row itself."""

import math
from collections.abc import Sequence

import numpy as np

from penstock.kernels.noise import uniform
from penstock.replay.sampler import RowSampler
from penstock.types import Array, Arrays

__all__ = ["Mixture"]

_LANE = np.full(1, (1 << 32) - 1)
# No lane of a run, so its noise is nobody else's.


class Mixture:
    """Samplers and what share of every batch each of them fills.

    A share that is no whole number of rows is rounded up or down by chance, keyed by the batch: exact on average.
    """

    def __init__(self, samplers: Sequence[RowSampler], weights: Sequence[float]) -> None:
        """Share batches out.

        Args:
            samplers: of tables with the same fields.
            weights: one each, from 0 on, in any unit.

        Raises:
            ValueError: there are not as many, one is negative, or all are 0.
        """
        total = math.fsum(weights)
        if len(samplers) != len(weights) or min(weights, default=-1.0) < 0.0 or not 0.0 < total < math.inf:
            raise ValueError(f"{len(samplers)} samplers cannot be mixed by weights {list(weights)}")
        self._samplers = list(samplers)
        # The last is 1 whatever the rounding.
        self._ends = [math.fsum(weights[: number + 1]) / total for number in range(len(weights) - 1)] + [1.0]

    def sample(
        self,
        key: tuple[int, int],
        out: Arrays,
        before: Sequence[Sequence[int] | None] | None = None,
        beta: float = 0.0,
    ) -> tuple[int, ...]:
        """Fill a batch of m rows: those of the first sampler, then those of the next.

        Importance weights are relative to the largest of a sampler's own part.

        Args:
            key: seed and number of the batch.
            out: as for `penstock.replay.sampler.Sampler.sample`.
            before: one for each sampler, as there.
            beta: as there.

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
