"""The bar of a benchmark: a value, the value that it must reach, and whether it does. Measures nothing."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple


def in_json(value: float, digits: int = 3) -> float | None:
    """A number of a committed result, rounded. An infinite one becomes ``None``, because JSON has no infinity."""
    return round(value, digits) if math.isfinite(value) else None


class Bar(NamedTuple):
    """One value, and the value that it must reach."""

    name: str
    value: float
    bar: float
    at_most: bool = False
    """True: the value must not be above the bar. False: it must not be below the bar."""

    @property
    def holds(self) -> bool:
        """Whether the value reaches the bar."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    def line(self) -> str:
        """A line for people: the value, then the bar, then the verdict."""
        limit = "at most" if self.at_most else "at least"
        verdict = "holds" if self.holds else "FALLS SHORT"
        return f"{self.name}: {self.value:.2f} ({limit} {self.bar:g}): {verdict}"

    def entry(self) -> dict[str, Any]:
        """The entry of a committed result."""
        limit = "at_most" if self.at_most else "at_least"
        return {"name": self.name, "value": in_json(self.value), limit: self.bar, "holds": self.holds}


def exit_status(bars: Iterable[Bar]) -> int:
    """The exit status of a benchmark: 1 if a value falls short of its bar."""
    return int(any(not bar.holds for bar in bars))
