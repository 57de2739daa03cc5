"""How evenly environment processes give rows. Without lock step a fast one gives more of them than a slow one."""

from collections.abc import Mapping

import numpy as np

from penstock.metrics.report import SHARE_MIN, SHARE_MIN_ENV
from penstock.types import Array, Arrays

__all__ = ["RowShares"]

ROLLOUTS = 10
"""A share is found once each process has given so many rollouts on average. Over fewer, one that was taken just before
or just after would make a large difference."""


class RowShares:
    """Finds the environment process that gives the fewest rows, again and again.

    Args:
        processes: environment processes of the run. Each has as many lanes as any other, in lane order.
        rows: rows of one rollout of all of them.
    """

    def __init__(self, processes: int, rows: int) -> None:
        self._processes = processes
        self._least = ROLLOUTS * rows
        self._before: Array = np.zeros(processes, np.int64)
        """Rows that each process had given when its share was found last."""
        self._found: dict[str, float] = {}

    def start(self, committed: Arrays) -> None:
        """Begin after this commit."""
        self._before = self._given(committed)

    def add(self, committed: Arrays) -> Mapping[str, float]:
        """The share that was found last, of the rows up to this commit; empty if there were too few so far."""
        given = self._given(committed)
        rows = given - self._before
        total = int(rows.sum())
        if total >= self._least:
            fewest = int(rows.argmin())
            self._found = {SHARE_MIN: int(rows[fewest]) * self._processes / total, SHARE_MIN_ENV: float(fewest)}
            self._before = given
        return self._found

    def _given(self, committed: Arrays) -> Array:
        given: Array = committed["lane_collected"].reshape(self._processes, -1).sum(axis=1)
        return given
