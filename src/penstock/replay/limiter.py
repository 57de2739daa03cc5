"""How far collecting and learning may run apart: formulas over counts of rows and steps. Holds no state."""

import math
from dataclasses import dataclass

__all__ = ["RateLimiter"]


@dataclass(frozen=True)
class RateLimiter:
    """So many gradient steps follow each row beyond the first ``min_rows``; collecting may be ahead by a tolerance.

    Where rows are slow to come, learning may be ahead as well: up to ``reuse`` times the steps that are due.

    Samples per insert are ``steps_per_row`` times the rows of a minibatch. As in Reverb (Cassirer et al. 2021,
    https://arxiv.org/abs/2102.04736), but counted in whole gradient steps.
    """

    min_rows: int
    """Nothing is drawn before so many rows are there."""
    steps_per_row: float
    """Gradient steps for each row."""
    tolerance: int
    """How many rows collecting may be ahead of the steps that are done for them."""
    reuse: float
    """At least 1: steps for each row at most, as a multiple of ``steps_per_row``."""

    def due(self, rows: int) -> int:
        """Gradient steps that so many rows make due."""
        return max(0, math.floor((rows - self.min_rows) * self.steps_per_row))

    def paid(self, rows: int, owed: int) -> int:
        """The rows among so many whose gradient steps are done, while ``owed`` steps are not."""
        return rows - (math.ceil(owed / self.steps_per_row) if owed else 0)

    def spare(self, rows: int, steps: int) -> int:
        """Gradient steps that may be taken while no row comes: ``steps`` are behind those that so many rows allow.

        None at a ``reuse`` of 1, also where a resume without its table has left steps out that were due.
        """
        if self.reuse == 1.0:
            return 0
        return max(0, math.floor(self.due(rows) * self.reuse) - steps)

    def may_insert(self, inserted: int, paid: int) -> bool:
        """True if another row may be inserted now."""
        return inserted - paid < self.tolerance

    def __str__(self) -> str:
        """What a drawing of the program says of it."""
        steps = f"{self.steps_per_row:g} gradient steps a row from {self.min_rows:,} rows on"
        more = f", up to {self.reuse:g} times as many while rows are slow" if self.reuse > 1.0 else ""
        return f"{steps}{more}, at most {self.tolerance:,} rows ahead"
