"""Ratios, and the arithmetic of rounds."""

import numpy as np

from benchmarks.measured import Measured, ratios
from benchmarks.timing import Contestant, compare


def test_ratios_are_times_of_our_first_row():
    rows = [
        Measured("a", "ours", "penstock", 2.0),
        Measured("a", "theirs", "peer", 5.0),
        Measured("a", "ours again", "penstock", 3.0),
        Measured("b", "ours", "penstock", 10.0),
        Measured("b", "floor", "limit", 1.0),
    ]
    assert ratios(rows) == {"a": {"theirs": 2.5, "ours again": 1.5}, "b": {"floor": 0.1}}


def test_where_nothing_is_ours_ratios_are_times_of_the_first_row():
    rows = [Measured("a", "theirs", "peer", 5.0), Measured("a", "floor", "limit", 1.0)]
    assert ratios(rows) == {"a": {"floor": 0.2}}


def test_contestants_take_turns_and_the_first_round_does_not_count():
    order = []
    seconds = iter([9.0, 1.0, 9.0, 2.0, 9.0, 4.0])

    def single():
        order.append("single")
        return np.asarray(1e-6 * next(seconds))

    def many():
        order.append("many")
        # Medians 1, 1 and the first round's 1; the largest decides the 99th percentile.
        return np.array([1e-6, 1e-6, next(seconds) * 1e-6])

    one, each = compare("a", [Contestant("one", "penstock", single), Contestant("each", "peer", many)], rounds=2)
    assert order == ["single", "many"] * 3
    # single: 9 in the warm-up, then 9 and 9; it is a mean and has no percentiles.
    assert one == Measured("a", "one", "penstock", 9.0)
    assert (each.us, each.what, each.kind) == (1.0, "each", "peer")
    # numpy's linear percentile: 1 + (x - 1) * 0.98 for the largest x of 3; median of those of 2 and 4.
    assert each.p99_us == round((1.98 + 3.94) / 2, 3)


def test_p99_needs_single_calls():
    rows = compare("a", [Contestant("one", "penstock", lambda: np.asarray(1.0))], rounds=1)
    assert rows == [Measured("a", "one", "penstock", 1e6)]
