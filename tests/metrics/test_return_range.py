"""The discounted return of an episode of equal rewards, beside a range."""

import pytest

from penstock.metrics.return_range import ReturnRange


def test_returns_within_the_range_need_no_word() -> None:
    # CartPole-v1: 500 rewards of 1 are 100 (1 - 0.99^500) = 99.3, although their sum is 500.
    assert ReturnRange(0.0, 100.0, 0.99).outside(500.0, 500.0) is None
    # Four rewards of -1 are -1 - 0.5 - 0.25 - 0.125 = -1.875.
    assert ReturnRange(-1.875, 0.0, 0.5).outside(-4.0, 4.0) is None


@pytest.mark.parametrize(
    ("known", "total", "said"),
    [
        (ReturnRange(0.0, 100.0, 0.5), -4.0, "about -1.875 with --gamma 0.5: below --value_min 0."),
        (ReturnRange(-1.8, 0.0, 0.5), -4.0, "about -1.875 with --gamma 0.5: below --value_min -1.8."),
        (ReturnRange(-10.0, 3.5, 1.0), 4.0, "about 4 with --gamma 1: above --value_max 3.5."),
    ],
)
def test_returns_outside_are_told_with_what_to_type(known: ReturnRange, total: float, said: str) -> None:
    line = known.outside(total, 4.0)
    assert line is not None
    assert line.startswith(f"episodes return {total:g} in 4 steps, {said}")
    assert line.endswith("give another --value_max" if total > 0 else "give another --value_min")


def test_a_return_that_is_not_a_number_is_left_to_others() -> None:
    assert ReturnRange(0.0, 1.0, 0.9).outside(float("nan"), 4.0) is None
