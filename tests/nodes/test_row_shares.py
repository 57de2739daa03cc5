"""How evenly environment processes give rows."""

from collections.abc import Mapping

import numpy as np

from penstock.metrics.report import SHARE_MIN, SHARE_MIN_ENV
from penstock.nodes.learner.row_shares import RowShares
from penstock.types import Arrays

LANES, STEPS = 8, 5
"""Of four processes, with two lanes each. A rollout of all of them has 40 rows, so a share is one of 400 rows."""


class Giving:
    """A run whose lanes have given 7 rows each before it began, and so have these."""

    def __init__(self) -> None:
        self._lanes = np.full(LANES, 7)
        self._shares = RowShares(4, LANES * STEPS)
        self._shares.start(self._committed())

    def _committed(self) -> Arrays:
        return {"lane_collected": self._lanes.copy()}

    def give(self, *rows: int) -> Mapping[str, float]:
        """Each process gives so many rows, one of them by its first lane."""
        for process, count in enumerate(rows):
            self._lanes[2 * process : 2 * process + 2] += (1, count - 1)
        return self._shares.add(self._committed())


def test_the_fewest_rows_are_told_over_those_of_an_even_share() -> None:
    giving = Giving()
    assert giving.give(200, 102, 60, 37) == {}
    # 220, 103, 63 and 114 of 500 rows, whose even share is 125: 63 / 125.
    assert giving.give(20, 1, 3, 77) == {SHARE_MIN: 0.504, SHARE_MIN_ENV: 2.0}


def test_what_was_told_counts_no_more() -> None:
    giving = Giving()
    told = {SHARE_MIN: 0.4, SHARE_MIN_ENV: 3.0}
    # 50 of 500 rows, whose even share is 125.
    assert giving.give(300, 90, 60, 50) == told
    # 396 rows more: the line repeats what was told.
    assert giving.give(99, 99, 79, 119) == told
    # 100, 100, 80 and 120 of 400 rows.
    assert giving.give(1, 1, 1, 1) == {SHARE_MIN: 0.8, SHARE_MIN_ENV: 2.0}
    assert giving.give(100, 100, 100, 100) == {SHARE_MIN: 1.0, SHARE_MIN_ENV: 0.0}
