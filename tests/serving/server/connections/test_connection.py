"""Connections whose clients do not read: what they ask meanwhile waits, and is answered once they read again."""

from penstock.serving.server.protocols.gamecore.tcp import GamecoreConnection
from tests.serving.server.fuzz_frames import Front, Wire
from tests.serving.server.fuzz_seeds import BODY
from tests.serving.server.harness import frame


class Paused(Wire):
    """Says whether the server reads."""

    is_read = True

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True


def test_what_came_while_no_reply_was_read_is_answered_once_the_client_reads() -> None:
    front, wire = Front(), Paused()
    connection = GamecoreConnection(front.service)
    connection.connection_made(wire)
    connection.pause_writing()
    assert not wire.is_read
    # It was on its way.
    connection.data_received(frame("", "", BODY) * 2)
    front._turn()
    assert not wire.sent
    connection.resume_writing()
    front._turn()
    assert wire.sent.count(b'{"action"') == 2
    assert wire.is_read


def test_a_client_is_not_read_while_as_many_replies_are_due_as_may_be() -> None:
    front, wire = Front(), Paused()
    connection = GamecoreConnection(front.service)
    connection.connection_made(wire)
    connection.data_received(frame("", "", BODY) * 200)
    assert not wire.is_read
    for _ in range(8):
        front._turn()
    assert wire.sent.count(b'{"action"') == 200
    assert wire.is_read


def test_a_client_that_waited_long_for_its_reply_was_not_silent() -> None:
    """As the game of a run that trains, whose tick waits for the learner."""
    front, wire = Front(), Wire()
    connection = GamecoreConnection(front.service)
    connection.connection_made(wire)
    connection.data_received(frame("", "", BODY))
    later = front.loop.time() + front.service.limits.idle_seconds + 1.0
    connection.sweep(later)
    front._turn()
    assert wire.sent.count(b'{"action"') == 1
    connection.sweep(later + 1.0)
    assert not connection.is_deaf
    connection.sweep(later + 1.0 + front.service.limits.idle_seconds)
    assert connection.is_deaf
