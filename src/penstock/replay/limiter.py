"""Limits how far collecting and learning may run apart: formulas over counts of rows and steps. Holds no state."""

import math
from dataclasses import dataclass

__all__ = ["RateLimiter"]


@dataclass(frozen=True)
class RateLimiter:
    """Each row after the first ``min_rows`` makes gradient steps due. Collecting may be ahead of them by a tolerance.

    While rows are slow to come, learning may be ahead: up to ``reuse`` times the steps that are due.

    It limits as Reverb does (Cassirer et al. 2021, https://arxiv.org/abs/2102.04736), but counts whole gradient steps.
    Reverb's samples per insert are ``steps_per_row`` times the rows of a minibatch.
    """

    min_rows: int
    """No row is sampled before the table holds this many."""
    steps_per_row: float
    """Gradient steps for each row."""
    tolerance: int
    """Most rows by which collecting is ahead of the gradient steps."""
    reuse: float
    """Most gradient steps for each row, as a multiple of ``steps_per_row``; at least 1."""

    def due(self, rows: int) -> int:
        """Gradient steps that ``rows`` rows make due."""
        return max(0, math.floor((rows - self.min_rows) * self.steps_per_row))

    def paid(self, rows: int, owed: int) -> int:
        """How many of these rows have all their gradient steps done, while ``owed`` steps are still to do."""
        return rows - (math.ceil(owed / self.steps_per_row) if owed else 0)

    def spare(self, rows: int, steps: int) -> int:
        """Gradient steps that may be taken while no row comes, after ``steps`` steps for ``rows`` rows.

        Always 0 if ``reuse`` is 1. A run that was resumed without its table has taken fewer steps than its rows make
        due. With a ``reuse`` of 1 it does not take them later either.
        """
        if self.reuse == 1.0:
            return 0
        return max(0, math.floor(self.due(rows) * self.reuse) - steps)

    def may_insert(self, inserted: int, paid: int) -> bool:
        """True if another row may be inserted now."""
        return inserted - paid < self.tolerance

    def __str__(self) -> str:
        """The limiter as text, for ``penstock draw``."""
        steps = f"{self.steps_per_row:g} gradient steps a row from {self.min_rows:,} rows on"
        more = f", up to {self.reuse:g} times as many while rows are slow" if self.reuse > 1.0 else ""
        return f"{steps}{more}, at most {self.tolerance:,} rows ahead"
