"""Whether the returns of a run's episodes lie in the range of the distribution that it learns. Reads no episode."""

from typing import NamedTuple

__all__ = ["ReturnRange"]


class ReturnRange(NamedTuple):
    """The range of a learned distribution of returns: ``--value_min``, ``--value_max``. Others count as its ends."""

    low: float
    high: float
    gamma: float

    def outside(self, total: float, length: float) -> str | None:
        """One line if an episode's discounted return is outside the range, else ``None``.

        Only the sum of its rewards is known, so the rewards count as equal. Of n rewards r that is
        ``r (1 - gamma^n) / (1 - gamma)``.

        Args:
            total: sum of its rewards, not discounted.
            length: its steps, at least 1.
        """
        steps = length if self.gamma == 1.0 else (1.0 - self.gamma**length) / (1.0 - self.gamma)
        discounted = total / length * steps
        if discounted < self.low:
            side, which, end = "below", "--value_min", self.low
        elif discounted > self.high:
            side, which, end = "above", "--value_max", self.high
        else:
            return None
        about = f"about {discounted:,.4g} with --gamma {self.gamma:g}"
        return (
            f"episodes return {total:,.4g} in {length:,.4g} steps, {about}: {side} {which} {end:g}. Such returns count "
            f"as {end:g}, so little is learned; give another {which}"
        )
