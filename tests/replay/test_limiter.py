"""The rate limiter's formula on numbers worked out by hand."""

from penstock.replay.limiter import RateLimiter

LIMITER = RateLimiter(min_rows=100, samples_per_insert=2.0, tolerance=10)


def test_nothing_is_drawn_before_the_least_number_of_rows_is_there() -> None:
    assert not LIMITER.may_draw(99, 0, 1)
    assert not LIMITER.may_draw(100, 0, 1)
    # 2 rows may be drawn for each of the 4 beyond 100.
    assert LIMITER.may_draw(104, 0, 8)
    assert not LIMITER.may_draw(104, 1, 8)


def test_collecting_waits_where_it_is_too_far_ahead() -> None:
    assert LIMITER.may_insert(109, 0)
    assert not LIMITER.may_insert(110, 0)
    # 8 rows drawn stand for 4 inserted.
    assert LIMITER.may_insert(113, 8)
    assert not LIMITER.may_insert(114, 8)


def test_where_rows_are_drawn_as_they_come_neither_side_waits_for_ever() -> None:
    inserted = drawn = 0
    for _ in range(1000):
        if LIMITER.may_insert(inserted, drawn):
            inserted += 1
        elif LIMITER.may_draw(inserted, drawn, 16):
            drawn += 16
        else:
            raise AssertionError(f"{inserted} inserted, {drawn} drawn: nobody may go on")
    assert inserted > 400
