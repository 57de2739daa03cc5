"""Clients that are slow, silent, broken or malicious: clean errors, bounded memory, and everybody else is served."""

import contextlib
import http.client
import json
import logging
import socket
import threading
import time

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.serving.server.harness import (
    REQUEST,
    Game,
    Running,
    SecondGame,
    frame,
    halted,
    resume,
    serving,
    sweep_later,
    until,
)

BODY = b'{"obs": [0.1, 0.2, 0.3]}'
INFER = b'{"inputs": [{"name": "obs", "shape": [1, 3], "datatype": "FP32", "data": [0.1, 0.2, 0.3]}]}'


def answers(server: Running) -> bool:
    """Whether a well-behaved client gets its answer, over both protocols."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
    connection.request("POST", "/step", BODY)
    with Game(server.tcp) as game:
        return connection.getresponse().status == 200 and "action" in json.loads(game.ask("", "", BODY))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=120.0)


def whole(connection: socket.socket) -> bytes:
    """All that the server sends until it closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65536):
            data += more
    return data


@pytest.fixture(scope="module")
def server():
    with serving(max_body=4096) as running:
        yield running


@pytest.mark.parametrize("path", ["/step", "/v2/models/toy/infer"])
def test_a_body_of_many_values_is_refused_unread(path: str) -> None:
    with serving() as server, contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.http)) as connection:
        connection.request("POST", path, b"[" + b"[]," * 100_000 + b"0]")
        reply = connection.getresponse()
        assert reply.status == 400
        assert b"more than 4480 values, which no batch needs (--max_batch)" in reply.read()
        assert answers(server)


@pytest.mark.parametrize("port", ["http", "tcp"])
def test_a_request_that_never_ends_is_cut_off(port: str) -> None:
    """The time counts from its first bytes, whatever comes later."""
    begun = {"http": b"POST /step HTTP/1.1\r\ncontent-length: 9\r\n", "tcp": frame("a", "start")[:-1]}[port]
    with serving(max_seconds=1000.0) as server, connect(getattr(server, port)) as connection:
        connection.sendall(begun[:20])
        until(lambda: server.server._service.connections)
        (served,) = server.server._service.connections
        until(lambda: served.partial_since is not None)
        began, heard = served.partial_since, served._heard
        time.sleep(0.01)  # the server's clock counts milliseconds
        connection.sendall(begun[20:])
        until(lambda: served._heard > heard)
        sweep_later(server, began + 1000.001 - server.loop.time())
        assert whole(connection) == b""
        assert answers(server)


def test_half_closed_clients_get_the_replies_to_what_they_asked(server: Running) -> None:
    with connect(server.tcp) as connection:
        connection.sendall(b"".join(frame("", "", BODY, time=number) for number in range(300)))
        connection.shutdown(socket.SHUT_WR)
        data = whole(connection)
    assert data.count(b'{"action"') == 300
    with connect(server.http) as connection:
        connection.sendall(b"POST /step HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY))
        connection.shutdown(socket.SHUT_WR)
        assert whole(connection).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("size", [-1, 4097, 2**31, 2**62, -(2**63)])
@pytest.mark.parametrize("place", range(5))
def test_no_size_of_a_frame_takes_memory(server: Running, place: int, size: int) -> None:
    before = psutil.Process().memory_info().rss
    sizes = [0] * 5
    sizes[place] = size
    with connect(server.tcp) as connection:
        connection.sendall(REQUEST.pack(*sizes, 0))
        assert whole(connection) == b""
    assert psutil.Process().memory_info().rss - before < 32 << 20


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /step HTTP/1.1\r\ncontent-length: 4097\r\n\r\n", 413),
        (b"POST /step HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n", 400),
        (b"POST /step HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1001\r\n" + b"x" * 4097, 413),
        (b"POST /step HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", 404),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 200_000, 431),
        (b"GET /" + b"a" * 200_000, 431),
    ],
    ids=["long", "number", "chunks", "negative", "upgrade", "http/2", "tls", "header", "path"],
)
def test_a_bad_head_is_one_error_and_the_end(server: Running, head: bytes, status: int) -> None:
    with connect(server.http) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(head)
        reply = whole(connection)
    assert reply.startswith(b"HTTP/1.1 %d " % status)
    assert reply.count(b"HTTP/1.1") == 1
    said = json.loads(reply.partition(b"\r\n\r\n")[2])
    # Gamecore reads one, the Open Inference Protocol the other.
    assert said["error"] == said["detail"]


HEADERS = b"".join(b"x%d: %b\r\n" % (number, b"y" * 1000) for number in range(100))


def test_the_limit_of_a_head_does_not_depend_on_how_it_comes(server: Running) -> None:
    for headers, status in ((HEADERS, 431), (HEADERS[:30_000].rpartition(b"x")[0], 200)):
        head = b"GET /v2/health/live HTTP/1.1\r\n" + headers + b"connection: close\r\n\r\n"
        for size in (len(head), 1000):
            with connect(server.http) as connection, contextlib.suppress(OSError):
                for start in range(0, len(head), size):
                    connection.sendall(head[start : start + size])
                assert whole(connection).startswith(b"HTTP/1.1 %d " % status)


def test_a_reply_to_head_has_no_body(server: Running) -> None:
    asked = [
        b"%b %b HTTP/1.1\r\n" % (method, path) for path in (b"/metrics", b"/nowhere") for method in (b"HEAD", b"GET")
    ]
    heads, bodies = [], []
    for request in asked:
        with connect(server.http) as connection:
            connection.sendall(request + b"connection: close\r\n\r\n")
            head, _, body = whole(connection).partition(b"\r\n\r\n")
            heads.append(head.split(b"\r\n")[:2])
            bodies.append(body)
    assert heads[::2] == heads[1::2]
    assert [bool(body) for body in bodies] == [False, True, False, True]


@pytest.mark.parametrize(
    ("target", "status"),
    [(b"http://penstock.test:80/metrics?all", 200), (b"http://penstock.test", 404), (b"*", 404)],
)
def test_a_target_may_be_a_whole_url(server: Running, target: bytes, status: int) -> None:
    with connect(server.http) as connection:
        connection.sendall(b"GET %b HTTP/1.1\r\nconnection: close\r\n\r\n" % target)
        assert whole(connection).startswith(b"HTTP/1.1 %d " % status)


def test_blanks_around_a_header_are_not_part_of_it() -> None:
    with serving(token="secret") as server, connect(server.http) as connection:
        head = b"POST /step HTTP/1.1\r\nconnection: close\r\ntoken: \t secret \t \r\ncontent-length: %d\r\n\r\n" % len(
            BODY
        )
        connection.sendall(head + BODY)
        assert whole(connection).startswith(b"HTTP/1.1 200 ")


def test_a_trailer_is_no_header() -> None:
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
    with serving(token="secret") as server, connect(server.http) as connection:
        head = b"POST /step HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        connection.sendall(head + chunks + b"token: secret\r\n\r\n")
        assert whole(connection).startswith(b"HTTP/1.1 401 ")


def test_a_name_of_a_session_has_a_limit_over_http_as_well(server: Running) -> None:
    assert post(server, "/step", b"", {"session": "a" * 257, "step-kind": "start"}) == 400


def test_a_reply_that_never_comes_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(max_seconds=0.1) as server, connect(server.http) as connection:
        monkeypatch.setattr(server.endpoint, "ask", lambda *_: None)
        connection.sendall(b"POST /step HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY))
        assert whole(connection) == b""


def test_pipelined_http_requests_are_answered_in_order(server: Running) -> None:
    parts = []
    for number in range(200):
        obs = json.dumps({"obs": [number / 200, 0.0, 0.0]}).encode()
        parts.append(b"POST /step HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(obs), obs))
        parts.append(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
    with connect(server.http) as connection:
        connection.sendall(b"".join(parts))
        connection.shutdown(socket.SHUT_WR)
        bodies = [part.rpartition(b"\r\n\r\n")[2] for part in whole(connection).split(b"HTTP/1.1 200 OK")[1:]]
    assert len(bodies) == 400
    assert all(body == b'{"live":true}' for body in bodies[1::2])
    assert len(set(bodies[0::2])) == 200


def test_while_the_server_ends_replies_tell_http_clients_to_leave() -> None:
    with serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
        for is_ending, header in ((False, None), (True, "close")):
            server.server._service.is_ending = is_ending
            connection.request("POST", "/step", BODY)
            reply = connection.getresponse()
            assert (reply.status, reply.getheader("connection")) == (200, header)
            reply.read()


def test_curl_may_wait_for_a_continue(server: Running) -> None:
    with connect(server.http) as connection:
        connection.sendall(b"POST /step HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("port", ["http", "tcp"])
def test_a_client_that_reads_nothing_does_not_fill_the_memory(port: str) -> None:
    one = frame("", "", BODY) if port == "tcp" else b"GET /v2/models/toy HTTP/1.1\r\n\r\n"
    before = psutil.Process().memory_info().rss
    with serving() as server, socket.socket() as connection:
        # Before it connects: to take room away from an open connection may make TCP stand still for minutes.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", getattr(server, port)))
        connection.settimeout(0.5)
        connections = server.server._service.connections
        until(lambda: len(connections) == 1)
        (there,) = connections
        many, sent = memoryview(one * 2000), 0
        # A send that takes too long is no proof that the server reads no more: on a busy machine it may be late.
        # Or it has cut the client off already: where the buffers of both sides are full, TCP may stand still for longer
        # than a request may take to arrive.
        while sent < 256 << 20 and there._unread_since is None and connections:
            # A part of a request may have been sent. Its rest comes next, or the server would read something else.
            with contextlib.suppress(TimeoutError, ConnectionError):
                sent += connection.send(many[sent % len(many) :])
        assert sent < 64 << 20
        while connections:
            sweep_later(server, server.service.limits.max_seconds + 1.0)
        assert answers(server)
    assert psutil.Process().memory_info().rss - before < 64 << 20


def test_silent_connections_are_bounded_and_cost_little() -> None:
    with serving(max_connections=200) as server:
        silent = [connect(server.http if number % 2 else server.tcp) for number in range(300)]
        connections = server.server._service.connections
        until(lambda: len(connections) == 200)
        while connections:
            sweep_later(server, server.service.limits.idle_seconds + 1.0)
        assert answers(server)
        for connection in silent:
            assert whole(connection) == b""
            connection.close()


def test_a_full_queue_is_told_and_passes() -> None:
    """A worker has two batches at once, and two wait; so eight of twelve are refused at once."""
    with serving(workers=1, max_batch=1, max_queue=2) as server, halted(server):
        statuses: list[tuple[int, str | None]] = []

        def ask() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
            connection.request("POST", "/step", BODY)
            reply = connection.getresponse()
            statuses.append((reply.status, reply.getheader("retry-after")))

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        until(lambda: len(statuses) == 8)
        assert set(statuses) == {(503, "1")}
        resume(server)
        for thread in threads:
            thread.join()
        assert statuses[8:] == [(200, None)] * 4
        assert answers(server)


FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def altered(base: bytes):
    """Bytes that are nearly, but mostly not, what a client sends."""
    cut = st.integers(0, len(base))
    return st.one_of(
        st.binary(max_size=200),
        st.tuples(cut, st.binary(max_size=8)).map(lambda found: base[: found[0]] + found[1]),
        st.tuples(cut, st.binary(min_size=1, max_size=4)).map(
            lambda found: base[: found[0]] + found[1] + base[found[0] + len(found[1]) :]
        ),
    )


@FUZZ
@given(data=altered(frame("a", "", BODY, key="k", token="t") * 2))
def test_fuzzed_frames(server: Running, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    """A client's nonsense is at most a warning: an error would be one of the server."""
    exchange(server.tcp, data)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@FUZZ
@given(data=altered(b"POST /step HTTP/1.1\r\nsession: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)))
def test_fuzzed_http(server: Running, data: bytes) -> None:
    reply = exchange(server.http, data)
    assert reply == b"" or reply.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 500" not in reply


@FUZZ
@given(body=altered(BODY), path=st.sampled_from(["/step", "/v2/models/toy/infer"]))
def test_fuzzed_bodies(server: Running, body: bytes, path: str) -> None:
    assert post(server, path, body) in {200, 400}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def masked():
    with serving("masked") as running:
        yield running


@FUZZ
@given(obs=st.just([0, 0, 0]) | values, mask=st.just([1, 1, 1, 1]) | values)
@example(obs=[0, 0, 0], mask=[1, [2]])
@example(obs=[0, [0], 0], mask=[1, 1, 1, 1])
@example(obs=[None, True, 0], mask=[1, 1, 1, None])
def test_fuzzed_observations_and_masks(masked: Running, obs: object, mask: object) -> None:
    body = json.dumps({"obs": obs, "action_mask": mask}).encode()
    assert post(masked, "/step", body) in {200, 400}


def test_a_mask_that_is_no_array_is_a_status_over_tcp(masked: Running) -> None:
    with SecondGame(masked.tcp) as game:
        status, text = game.request("", "", b'{"obs": [0, 0, 0], "action_mask": [1, [2]]}')
        assert (status, text) == (400, b"action_mask is no array: its rows have different lengths")
        assert game.request("", "", b'{"obs": [0, 0, 0], "action_mask": [1, 1, 1, 1]}')[0] == 200


@FUZZ
@given(
    head=st.fixed_dictionaries(
        {},
        optional={
            "inputs": st.lists(
                st.fixed_dictionaries(
                    {
                        "name": st.just("obs") | values,
                        "shape": st.just([1, 3])
                        | st.tuples(st.sampled_from([1, True, None, 1.0, "1", [1], -1, 2**70]), st.just(3))
                        | values,
                        "datatype": st.just("FP32") | values,
                    },
                    optional={"data": st.just([1, 2, 3]) | values, "parameters": values},
                ),
                max_size=2,
            )
            | values,
            "parameters": st.dictionaries(st.sampled_from(["sequence_id", "sequence_start", "sequence_end"]), values)
            | values,
            "outputs": values,
            "id": values,
        },
    ),
    tail=st.binary(max_size=20),
    length=st.integers(-5, 100) | st.none(),
)
def test_fuzzed_inferences(server: Running, head: object, tail: bytes, length: int | None) -> None:
    body = json.dumps(head).encode()
    headers = {} if length is None else {"Inference-Header-Content-Length": str(len(body) + length)}
    assert post(server, "/v2/models/toy/infer", body + tail, headers) in {200, 400, 404, 429}


@pytest.fixture(autouse=True, scope="module")
def _all_are_served_in_the_end(server: Running):
    yield
    assert answers(server)
    assert server.endpoint.is_idle


def exchange(port: int, data: bytes) -> bytes:
    with connect(port) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        return whole(connection)


def post(server: Running, path: str, body: bytes, headers: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
    connection.request("POST", path, body, headers or {})
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.status
