"""When a batch leaves. The wait is so long here that an answer shows that the batch did not wait for it."""

import pytest

from tests.serving.server.harness import Game, Running, SecondGame, second_frame, serving, until

TICK = b'{"obs": [0.1, 0.2, 0.3]}'


@pytest.fixture
def server():
    with serving(max_wait=1000.0) as running:
        yield running


def batches(server: Running) -> list[float]:
    """Rows and number of the batches that have left."""
    rows = server.endpoint.stable.batch_rows
    return [rows.total, sum(rows.counts)]


def test_a_batch_leaves_once_every_session_has_asked(server: Running) -> None:
    with Game(server.tcp) as one, Game(server.tcp) as other:
        one.ask("one", "start")
        for _ in range(3):
            assert b"action" in one.ask("one", "tick", TICK)
        assert batches(server) == [3, 3]
        other.ask("other", "start")
        for _ in range(3):
            one.send("one", "tick", TICK)
            other.send("other", "tick", TICK)
            assert b"action" in one.receive()[1]
            assert b"action" in other.receive()[1]
        assert batches(server) == [9, 6]


def test_a_batch_waits_for_no_session_that_has_ended(server: Running) -> None:
    with Game(server.tcp) as game:
        game.ask("one", "start")
        game.ask("other", "start")
        game.send("one", "tick", TICK)
        game.send("other", "stop")
        assert [b"action" in game.receive()[1] for _ in range(2)] == [True, False]


def test_a_session_whose_tick_was_refused_may_still_ask() -> None:
    with (
        serving(max_wait=1000.0, max_queue=1) as server,
        SecondGame(server.tcp) as one,
        SecondGame(server.tcp) as other,
    ):
        one.request("one", "start")
        other.request("other", "start")
        one.socket.sendall(second_frame(9, "one", "tick", TICK))
        until(lambda: server.endpoint.stable.queued)
        assert other.request("other", "tick", TICK)[0] == 503
        assert server.endpoint.stable.asking == 1
        assert other.request("other", "stop")[0] == 200
        assert one.reply()[:2] == (9, 200)
        assert server.endpoint.stable.asking == 0
