"""The rate limiter's formulas on numbers worked out by hand."""

from penstock.replay.limiter import RateLimiter

LIMITER = RateLimiter(min_rows=100, steps_per_row=0.25, tolerance=10, reuse=1.0)


def test_steps_are_due_from_the_least_number_of_rows_on() -> None:
    assert [LIMITER.due(rows) for rows in (0, 99, 100, 103, 104, 111, 112)] == [0, 0, 0, 0, 1, 2, 3]


def test_rows_are_paid_once_their_steps_are_done() -> None:
    # One step stands for 4 rows.
    assert [LIMITER.paid(120, owed) for owed in (0, 1, 2, 5)] == [120, 116, 112, 100]
    assert RateLimiter(0, 3.0, 1, 1.0).paid(10, 4) == 8


def test_collecting_waits_where_it_is_too_far_ahead() -> None:
    assert LIMITER.may_insert(109, paid=100)
    assert not LIMITER.may_insert(110, paid=100)
    assert LIMITER.may_insert(110, paid=104)


def test_without_gradient_steps_nobody_waits() -> None:
    still = RateLimiter(min_rows=10, steps_per_row=0.0, tolerance=5, reuse=1.0)
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


def test_steps_go_on_while_no_row_comes_up_to_the_bound() -> None:
    reusing = RateLimiter(min_rows=100, steps_per_row=0.25, tolerance=10, reuse=3.0)
    # 140 rows make 10 steps due, and allow 30.
    assert reusing.due(140) == 10
    assert [reusing.spare(140, steps) for steps in (10, 29, 30, 31)] == [20, 1, 0, 0]
    assert reusing.spare(100, 0) == 0
    # Without reuse no step is spare, not even steps that were due and left out.
    assert LIMITER.spare(140, 10) == LIMITER.spare(140, 3) == 0


def test_a_limiter_says_what_it_limits() -> None:
    assert str(LIMITER) == "0.25 gradient steps a row from 100 rows on, at most 10 rows ahead"
    assert ", up to 3 times as many while rows are slow, " in str(RateLimiter(100, 0.25, 10, 3.0))
