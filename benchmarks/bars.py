"""What a benchmark must reach: a value, its bar, and whether it holds. Measures nothing."""

import math
from typing import Any, NamedTuple


class Bar(NamedTuple):
    """One value beside what it must reach."""

    name: str
    value: float
    bar: float
    at_most: bool = False
    """The value must not exceed the bar, where it otherwise must not fall below it."""

    @property
    def holds(self) -> bool:
        """Whether the value reaches the bar."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    def line(self) -> str:
        """For people: the value first, then the bar, then the verdict."""
        limit = "at most" if self.at_most else "at least"
        verdict = "holds" if self.holds else "FALLS SHORT"
        return f"{self.name}: {self.value:.2f} ({limit} {self.bar:g}): {verdict}"

    def entry(self) -> dict[str, Any]:
        """For a committed result; a value that is infinite is ``None``, which JSON can hold."""
        value = round(self.value, 3) if math.isfinite(self.value) else None
        limit = "at_most" if self.at_most else "at_least"
        return {"name": self.name, "value": value, limit: self.bar, "holds": self.holds}
