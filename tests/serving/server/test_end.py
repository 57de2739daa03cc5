"""The end of a server: it answers what it has taken, and waits for nothing else. Its whole grace would be noticed."""

import json
import socket
import ssl
import threading
import time
from pathlib import Path

import tritonclient.grpc as triton_grpc

from penstock.serving.server.server import Certificate
from tests.serving.server.harness import Game, Running, frame, halted, observations, resume, serving, until

GRACE = 1000.0
TICK = b'{"obs": [0.1, 0.2, 0.3]}'


def ending(server: Running) -> threading.Thread:
    """Begin the end, and return once no request is taken any more."""
    thread = threading.Thread(target=server.end)
    thread.start()
    # The last call is over after this, unless the machine is busy; then the test shows less.
    until(lambda: server.server._service.is_ending)
    time.sleep(0.4)
    return thread


def test_a_reply_that_a_worker_owes_is_the_last_one() -> None:
    """The client keeps its connection, as games do."""
    with serving(workers=1, grace_seconds=GRACE) as server, Game(server.tcp) as game, halted(server):
        assert game.ask("g", "start") == b"{}"
        game.send("", "", TICK, time=7)
        until(lambda: not server.endpoint.is_idle)
        end = ending(server)
        resume(server)
        _, body, moment = game.receive()
        assert ("action" in json.loads(body), moment) == (True, 7)
        assert game.is_closed()
        end.join()


def test_a_reply_that_waits_for_its_batch_is_the_last_one() -> None:
    with serving(max_wait=1.0, grace_seconds=GRACE) as server, Game(server.tcp) as game:
        assert game.ask("g", "start") == b"{}"
        game.send("", "", TICK, time=7)
        # The batch may leave before this thread runs again; then the test shows less.
        until(lambda: not server.endpoint.is_idle or server.endpoint.stable.batch_rows.total)
        end = ending(server)
        assert game.receive()[2] == 7
        assert game.is_closed()
        end.join()


def test_a_client_of_tls_that_says_nothing_is_not_waited_for(certificate) -> None:
    files = Certificate(*map(Path, certificate))
    with serving(certificate=files, grace_seconds=GRACE) as server, Game(server.tcp) as game:
        game.socket = _secured(game.socket, certificate)
        assert game.ask("g", "start") == b"{}"
        server.end()


def test_a_client_whose_handshake_ends_late_is_not_waited_for(certificate) -> None:
    files = Certificate(*map(Path, certificate))
    with serving(workers=1, certificate=files, grace_seconds=GRACE) as server, halted(server):
        late = socket.create_connection(("127.0.0.1", server.tcp), timeout=120.0)
        with Game(server.tcp) as game, late:
            game.socket = _secured(game.socket, certificate)
            game.socket.sendall(frame("", "", TICK))
            until(lambda: not server.endpoint.is_idle)
            end = ending(server)
            with _secured(late, certificate):
                until(lambda: len(server.server._service.connections) > 1)
                resume(server)
                assert "action" in json.loads(game.receive()[1])
                end.join()


def test_a_stream_of_grpc_that_is_idle_ends() -> None:
    found: list[object] = []
    with serving(grpc=True, grace_seconds=GRACE) as server:
        client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}")
        tensor = triton_grpc.InferInput("obs", [1, 3], "FP32")
        client.start_stream(lambda result, error: found.append(error or result))
        client.async_stream_infer("toy", [tensor.set_data_from_numpy(observations(1))])
        until(lambda: bool(found))
        server.end()
        client.close()
    assert isinstance(found[0], triton_grpc.InferResult)


def _secured(plain: socket.socket, certificate: tuple[str, str]) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=certificate[0])
    context.check_hostname = False
    return context.wrap_socket(plain)
