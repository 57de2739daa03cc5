"""Tells which phases of an update are due, and generates their noise. Both depend only on the count of gradient steps.

So a gradient step that is repeated is the same step. Knows of a phase only how often it runs and which noise it takes.
"""

from collections.abc import Sequence

import numpy as np

from penstock.errors import PenstockError
from penstock.kernels.noise import generate
from penstock.seeding import phase_seed
from penstock.types import Arrays, NoiseSpec

__all__ = ["PhaseClock"]


class PhaseClock:
    """When the phases of an algorithm are due.

    Args:
        every: for each phase an n: it runs at every n-th gradient step.
        noise: for each phase the names and specs of its noise inputs.
        seed: the run's. The noise of a phase has a seed made from it, so it differs from the noise of acting.
        counted: the algorithm's state counts gradient steps.

    Raises:
        PenstockError: a phase needs the count of gradient steps, and the state has none.
    """

    def __init__(
        self, every: Sequence[int], noise: Sequence[Sequence[tuple[str, NoiseSpec]]], seed: int, *, counted: bool
    ) -> None:
        if not counted and (any(n != 1 for n in every) or any(noise)):
            raise PenstockError("phases that skip steps or take noise need gradient_steps, int64, in the state")
        self.count = 0
        """Gradient steps so far."""
        self._every = every
        self._noise = [
            [(name, spec, phase_seed(seed, phase, index)) for index, (name, spec) in enumerate(inputs)]
            for phase, inputs in enumerate(noise)
        ]

    def due(self) -> tuple[int, ...]:
        """The phases of the next gradient step, in order."""
        return tuple(phase for phase, every in enumerate(self._every) if self.count % every == 0)

    def noise(self, phase: int, first_row: int, rows: int) -> Arrays:
        """The noise of one phase for rows ``first_row ..`` of the next step: float32 ``[rows, ...]`` each."""
        numbers = np.arange(first_row, first_row + rows)
        return {name: generate(spec, seed, numbers, self.count) for name, spec, seed in self._noise[phase]}
