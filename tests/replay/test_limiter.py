"""The rate limiter's formulas on numbers worked out by hand."""

from penstock.replay.limiter import RateLimiter

LIMITER = RateLimiter(min_rows=100, steps_per_row=0.25, tolerance=10)


def test_steps_are_due_from_the_least_number_of_rows_on() -> None:
    assert [LIMITER.due(rows) for rows in (0, 99, 100, 103, 104, 111, 112)] == [0, 0, 0, 0, 1, 2, 3]


def test_rows_are_paid_once_their_steps_are_done() -> None:
    # One step stands for 4 rows.
    assert [LIMITER.paid(120, owed) for owed in (0, 1, 2, 5)] == [120, 116, 112, 100]
    assert RateLimiter(0, 3.0, 1).paid(10, 4) == 8


def test_collecting_waits_where_it_is_too_far_ahead() -> None:
    assert LIMITER.may_insert(109, paid=100)
    assert not LIMITER.may_insert(110, paid=100)
    assert LIMITER.may_insert(110, paid=104)


def test_without_gradient_steps_nobody_waits() -> None:
    still = RateLimiter(min_rows=10, steps_per_row=0.0, tolerance=5)
    assert still.due(1000) == 0
    assert still.may_insert(1000, still.paid(1000, 0))


def test_neither_side_waits_for_ever() -> None:
    inserted = done = 0
    for _ in range(2000):
        owed = LIMITER.due(inserted) - done
        if LIMITER.may_insert(inserted, LIMITER.paid(inserted, owed)):
            inserted += 1
        else:
            assert owed > 0
            done += 1
    assert 300 < done <= LIMITER.due(inserted) <= done + 3
