"""When a run is asked for the next checkpoint for the copy of its folder."""

import pytest

from penstock.cluster import freshness
from penstock.cluster.freshness import Freshness


def asked(until_s: float, answer_s: float, nbytes: int = 1000, transfer_s: float = 0.01) -> list[float]:
    """When a run is asked that writes each checkpoint ``answer_s`` after it was asked. It is looked every 10 ms."""
    fresh, found, written = Freshness(), list[float](), 0
    for step in range(round(until_s * 100)):
        now = step / 100
        if found and written < len(found) and now >= found[-1] + answer_s:
            written += 1
        if fresh.due(now, written, nbytes, transfer_s):
            found.append(now)
    return found


def test_small_checkpoints_are_asked_for_five_times_a_second() -> None:
    assert asked(1.0, answer_s=0.05) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8], abs=0.02)


def test_the_next_one_is_asked_for_as_soon_as_a_slow_update_has_ended() -> None:
    assert asked(2.0, answer_s=0.7) == pytest.approx([0.0, 0.7, 1.4], abs=0.02)


def test_a_request_that_nobody_answers_is_repeated() -> None:
    assert asked(7.0, answer_s=100.0) == pytest.approx([0.0, freshness.AGAIN_S, 2 * freshness.AGAIN_S], abs=0.02)


def test_large_checkpoints_take_no_more_bytes_a_second_than_they_may() -> None:
    times = asked(9.0, answer_s=0.05, nbytes=10_000_000)
    assert times == pytest.approx([0.0, 2.0, 4.0, 6.0, 8.0], abs=0.02)


def test_a_slow_link_is_free_for_other_things_nine_tenths_of_the_time() -> None:
    assert asked(5.0, answer_s=0.05, transfer_s=0.2) == pytest.approx([0.0, 2.0, 4.0], abs=0.02)
