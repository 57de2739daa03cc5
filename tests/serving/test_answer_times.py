"""Which server is asked first, and for how long one that fails is left alone: numbers worked out by hand."""

import heapq
import random
from collections.abc import Callable

import pytest

from penstock.serving.answer_times import AnswerTimes


def times(seconds: float = 0.0, now: float = 0.0) -> AnswerTimes:
    found = AnswerTimes()
    if seconds:
        found.answered(seconds, now)
    return found


def order(servers: list[AnswerTimes], now: float) -> list[int]:
    return sorted(range(len(servers)), key=lambda index: servers[index].place(now))


def test_the_mean_runs_with_an_eighth_of_each_new_answer() -> None:
    server = times()
    server.answered(0.008, 0.0)
    assert server.mean == 0.008
    # 0.008 + (0.016 - 0.008) / 8 = 0.009, then 0.009 + (0.001 - 0.009) / 8 = 0.008.
    server.answered(0.016, 0.0)
    assert server.mean == pytest.approx(0.009)
    server.answered(0.001, 0.0)
    assert server.mean == pytest.approx(0.008)


def test_the_server_that_is_expected_to_answer_soonest_is_the_first() -> None:
    servers = [times(0.010), times(0.030), times(0.020)]
    assert order(servers, 0.0) == [0, 2, 1]
    # 0.010 + (0.170 - 0.010) / 8 = 0.030, and 0.030 + (0.006 - 0.030) / 8 = 0.027.
    servers[0].answered(0.170, 0.0)
    servers[1].answered(0.006, 0.0)
    assert order(servers, 0.0) == [2, 1, 0]


def test_half_of_the_mean_is_forgotten_in_ten_seconds_without_an_answer() -> None:
    slow, quick = times(0.008), times(0.003)
    assert [slow.expected(now) for now in (0.0, 10.0, 20.0)] == [0.008, 0.004, 0.002]
    quick.answered(0.003, 10.0)
    assert order([slow, quick], 10.0) == [1, 0]
    quick.answered(0.003, 20.0)
    assert order([slow, quick], 20.0) == [0, 1]
    # It is still slow: 0.008 + (0.016 - 0.008) / 8 = 0.009.
    slow.answered(0.016, 20.0)
    assert order([slow, quick], 20.0) == [1, 0]


def test_a_server_that_was_never_asked_is_the_first() -> None:
    assert order([times(0.001), times(), times(0.002)], 0.0) == [1, 0, 2]


def test_pauses_double_from_half_a_second_to_a_minute_and_end_with_an_answer() -> None:
    server, now = times(0.001), 100.0
    for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        server.failed(0.001, now)
        # A second failure before the pause is over does not prolong it.
        server.failed(0.001, now)
        assert server.rest(now) == pause
        assert server.rest(now + pause) == 0.0
        now += pause
    assert server.failures == 9
    server.answered(0.001, now)
    assert (server.rest(now), server.failures) == (0.0, 0)
    server.failed(0.001, now)
    assert server.rest(now) == 0.5


def test_a_server_that_is_away_for_days_rests_for_a_minute_at_a_time() -> None:
    server, now = times(), 0.0
    for _ in range(2000):
        server.failed(0.001, now)
        now += server.rest(now)
    server.failed(0.001, now)
    assert server.rest(now) == 60.0


def test_a_try_that_took_long_is_followed_by_a_pause_of_ten_times_as_long() -> None:
    server = times()
    server.failed(2.0, 5.0)
    assert server.rest(5.0) == 20.0
    assert server.rest(7.5) == 17.5


def test_servers_that_rest_are_the_last_and_one_whose_pause_is_over_is_tried_at_once() -> None:
    servers = [times(0.001), times(0.001), times(0.500)]
    servers[0].failed(0.2, 10.0)
    servers[1].failed(0.1, 10.0)
    # The first one rests until 12, the second one until 11.
    assert order(servers, 10.5) == [2, 1, 0]
    assert order(servers, 11.5) == [1, 2, 0]
    servers[1].answered(0.001, 11.5)
    assert order(servers, 12.5) == [0, 1, 2]


def shares(seconds: Callable[[float], list[float]], clients: int, until: float, since: float) -> list[float]:
    """Shares of the questions that servers get from clients which ask again as soon as they are answered.

    Args:
        seconds: moment -> what an answer takes each server, in the mean. They answer one question after the other.
        clients: how many there are.
        until: the end.
        since: questions before this moment do not count.
    """
    draw, servers = random.Random(1), range(len(seconds(0.0)))
    seen = [[AnswerTimes() for _ in servers] for _ in range(clients)]
    free, counts = [0.0 for _ in servers], [0 for _ in servers]
    asks = [(draw.random() * 0.01, client) for client in range(clients)]
    heapq.heapify(asks)
    while asks[0][0] < until:
        now, client = heapq.heappop(asks)
        server = min(draw.sample(servers, len(servers)), key=lambda one: seen[client][one].place(now))
        free[server] = max(free[server], now) + draw.expovariate(1.0 / seconds(now)[server])
        seen[client][server].answered(free[server] - now, free[server])
        counts[server] += now >= since
        heapq.heappush(asks, (free[server], client))
    return [count / sum(counts) for count in counts]


def test_many_clients_load_servers_as_fast_as_they_are() -> None:
    # In a second they answer 1000, 500 and 250 questions: of 7 questions 4, 2 and 1.
    found = shares(lambda _: [0.001, 0.002, 0.004], clients=16, until=6.0, since=1.0)
    assert found == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=0.03)


def test_a_server_that_was_slow_for_a_while_gets_its_share_again() -> None:
    def seconds(now: float) -> list[float]:
        return [0.1 if 2.0 < now < 4.0 else 0.005, 0.005]

    assert shares(seconds, clients=16, until=4.0, since=2.5)[0] < 0.1
    assert shares(seconds, clients=16, until=50.0, since=40.0) == pytest.approx([0.5, 0.5], abs=0.05)
