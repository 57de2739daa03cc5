"""How numbers are spread, against arithmetic by hand."""

import numpy as np
import pytest

from penstock.metrics.histograms import BINS, histogram


def test_numbers_are_counted_in_parts_of_equal_width() -> None:
    found = histogram(np.array([[0.0, 1.0], [29.5, 30.0]], np.float32))
    assert found is not None
    assert (found.smallest, found.largest) == (0.0, 30.0)
    assert (found.total, found.squares) == (60.5, 1.0 + 29.5**2 + 900.0)
    assert found.limits.tolist() == pytest.approx(range(1, BINS + 1))
    # A part has its lower end, and the last one its upper end, too.
    assert {index: count for index, count in enumerate(found.counts.tolist()) if count} == {0: 1, 1: 1, 29: 2}


def test_equal_numbers_are_spread_over_nothing() -> None:
    found = histogram(np.full(5, 0.25, np.float32))
    assert found is not None
    assert (found.smallest, found.largest, found.counts.sum(), found.counts.max()) == (0.25, 0.25, 5, 5)


def test_neighbouring_numbers_can_be_told_apart() -> None:
    found = histogram(np.array([1.0, np.nextafter(np.float32(1.0), np.float32(2.0))], np.float32))
    assert found is not None
    assert (found.counts[0], found.counts[-1]) == (1, 1)


def test_nan_and_infinity_do_not_count() -> None:
    found = histogram(np.array([np.nan, 1.0, np.inf, 2.0]))
    assert found is not None
    assert (found.total, found.counts.sum()) == (3.0, 2)
    assert histogram(np.array([np.nan, -np.inf])) is None
    assert histogram(np.zeros(0, np.float32)) is None
