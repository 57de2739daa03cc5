"""Connections: where there are as many as may be, the most silent one gives way to a new client."""

import contextlib
import socket
import time

from tests.serving.server.fuzz_seeds import BODY, request
from tests.serving.server.harness import Game, Running, call, serving

STEP = request("POST", "/step", BODY)


def connect(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http), timeout=120.0)


def is_answered(connection: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        connection.sendall(STEP)
        return connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    return False


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes a connection at which nothing is due. It waits until it does."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def test_clients_that_say_nothing_or_send_byte_by_byte_shut_nobody_out() -> None:
    with serving(max_connections=4) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(8)]
        for byte in STEP[:20]:
            for one in slow[4:]:
                one.sendall(bytes([byte]))
        for _ in range(20):
            client = stack.enter_context(connect(server))
            assert is_answered(client)
            assert is_answered(client)
        assert all(map(is_closed, slow))


def test_who_has_asked_last_stays() -> None:
    with serving(max_connections=3) as server, contextlib.ExitStack() as stack:
        first, second, third = (stack.enter_context(connect(server)) for _ in range(3))
        assert all(map(is_answered, (third, second, first)))
        new = stack.enter_context(connect(server))
        assert is_answered(new)
        assert is_closed(third)
        assert all(map(is_answered, (first, second, new)))


def test_sessions_of_tcp_and_requests_in_flight_stay_and_then_a_new_client_is_closed() -> None:
    with serving(max_connections=2) as server, contextlib.ExitStack() as stack:
        version = server.endpoint.stable
        game = stack.enter_context(Game(server.tcp))
        game.ask("a", "start")
        client = stack.enter_context(connect(server))
        version.engine.is_free = lambda: False
        client.sendall(STEP)
        while not version.queued:
            time.sleep(0.001)
        assert is_closed(stack.enter_context(connect(server)))
        version.engine.is_free = lambda: True
        call(server, version.free)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert b"action" in game.ask("a", "tick", BODY)
        # The request is answered, so its connection gives way. The session lives, so that of the game does not.
        assert is_answered(stack.enter_context(connect(server)))
        assert is_closed(client)
        assert b"action" in game.ask("a", "tick", BODY)
