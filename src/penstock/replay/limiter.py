"""How far collecting and learning may run apart: a formula over two counts. Holds no state."""

from dataclasses import dataclass

__all__ = ["RateLimiter"]


@dataclass(frozen=True)
class RateLimiter:
    """Rows drawn follow rows inserted: ``drawn <= samples_per_insert (inserted - min_rows)``, both within a tolerance.

    As in Reverb (Cassirer et al. 2021, https://arxiv.org/abs/2102.04736).
    """

    min_rows: int
    """Nothing is drawn before so many rows are there."""
    samples_per_insert: float
    """How often each row is drawn on average."""
    tolerance: float
    """How many inserted rows collecting may be ahead of learning."""

    def may_insert(self, inserted: int, drawn: int) -> bool:
        """True if another row may be inserted now."""
        return inserted < self.min_rows + self.tolerance + drawn / self.samples_per_insert

    def may_draw(self, inserted: int, drawn: int, size: int) -> bool:
        """True if ``size`` rows may be drawn now."""
        return drawn + size <= self.samples_per_insert * (inserted - self.min_rows)

    def __str__(self) -> str:
        """What a drawing of the program says of it."""
        return f"{self.samples_per_insert:g} drawn for each inserted from {self.min_rows:,} on"
