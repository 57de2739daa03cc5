"""Adds up the metrics of several updates, for one line that stands for all of them. Writes nothing."""

from collections.abc import Mapping

from penstock.metrics.report import LAG, LAG_MAX, LOSS, SENT_BYTES

__all__ = ["Tally"]


class Tally:
    """The metrics of the updates since the last `clear`.

    How a metric is added up depends on its name:

    - Losses and the ages that end with ``/lag`` are means. Each update that has the metric weighs the same.
    - ``exchange/bytes`` is a sum. Of what ends with ``/lag_max`` the largest value stands.
    - All others count from the beginning of the run, so the latest value stands.
    """

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._updates: dict[str, int] = {}
        """Metric -> number of updates that had it."""

    def add(self, values: Mapping[str, float]) -> None:
        """Add the metrics of one update."""
        for name, value in values.items():
            before, updates = self._values.get(name), self._updates.get(name, 0) + 1
            self._updates[name] = updates
            self._values[name] = value if before is None else _added_up(name, before, value, updates)

    def values(self) -> dict[str, float]:
        """Metric -> its value for all of these updates."""
        return dict(self._values)

    def clear(self) -> None:
        """Forget all updates."""
        self._values.clear()
        self._updates.clear()


def _added_up(name: str, before: float, value: float, updates: int) -> float:
    """The value for ``updates`` updates, from that for all but the last of them and the last one's."""
    if name.startswith(LOSS) or name.endswith(LAG):
        return before + (value - before) / updates
    if name == SENT_BYTES:
        return before + value
    return max(before, value) if name.endswith(LAG_MAX) else value
