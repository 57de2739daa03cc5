"""Repeated heads: a connection that keeps them replies byte for byte as one that parses every request."""

import random
import tracemalloc

import pytest

from penstock.serving.server.connections.heads import Head, RepeatedHeads
from penstock.serving.server.connections.http import HttpConnection
from tests.serving.server.fuzz_frames import Front, Wire
from tests.serving.server.fuzz_seeds import BODY, request

OTHER = BODY.replace(b"0.1", b"0.7")
HEAD = Head("POST", "/step", {}, "POST /step")
STEP = request("POST", "/step", BODY)
START, TICK, STOP = (
    request("POST", "/step", body, "session: a", f"step_kind: {kind}")
    for kind, body in (("start", b""), ("tick", BODY), ("stop", b""))
)
CHUNKS = (
    *(STEP, request("POST", "/step", OTHER), request("POST", "/step", b"[" + BODY[1:]), STEP + STEP, b"\r\n" + STEP),
    *(STEP[:30], STEP[30:], STEP[:-3], STEP[-3:], STEP + STEP[:40], STEP[40:], STEP + b"\r\n", START, TICK, STOP),
    b"POST /step HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    request("POST", "/step", BODY, "expect: 100-continue"),
    request("POST", "/step", BODY, "content_length: 3"),
    request("POST", "/step", BODY, "content-encoding: gzip"),
    request("GET", "/v2/health/live", b""),
    b"GET /v2/models/toy HTTP/1.1\r\n\r\n",
    b"HEAD /v2/health/live HTTP/1.1\r\n\r\n",
    *(request("POST", "/step", BODY, "connection: close"), b"GET / HTTP/1.0\r\n\r\n", b"nonsense\r\n\r\n"),
)


class Parses(RepeatedHeads):
    def divided(self, data: bytes) -> None:
        return None


def replies(front: Front, chunks: list[bytes], heads: RepeatedHeads) -> bytes:
    """All that one connection replies to bytes that arrive in these parts."""
    connection, wire = HttpConnection(front.service, front.route), Wire()
    connection._repeated = heads
    connection.connection_made(wire)
    for chunk in chunks:
        connection.data_received(chunk)
        front._turn()
    connection.connection_lost(None)
    for session in list(front.endpoint.sessions):
        front.endpoint.stop(session.key, lambda: None)
    return bytes(wire.sent)


def test_whatever_arrives_gets_the_replies_of_a_connection_that_parses_everything() -> None:
    front, numbers = Front(), random.Random(0)
    for _ in range(400):
        # Few kinds, so that heads are repeated.
        chunks = numbers.choices(numbers.sample(CHUNKS, numbers.randint(1, 4)), k=8)
        assert replies(front, chunks, RepeatedHeads()) == replies(front, chunks, Parses())


def test_the_second_request_of_the_same_head_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    front, heads = Front(), RepeatedHeads()
    first = replies(front, [STEP], heads)
    monkeypatch.setattr(HttpConnection, "_parse", lambda *_: pytest.fail("parsed"))
    assert replies(front, [STEP, STEP], heads) == 2 * first


def test_a_body_in_many_small_chunks_takes_little_more_memory_than_its_bytes() -> None:
    front, wire = Front(), Wire()
    connection = HttpConnection(front.service, front.route)
    connection.connection_made(wire)
    head = b"POST /step HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    connection.data_received(head)
    count = front.service.limits.max_body // 2
    tracemalloc.start()
    try:
        for _ in range(count):
            connection.data_received(b"2\r\n  \r\n")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 4 * 2 * count + 10_000
    connection.data_received(b"0\r\n\r\n")
    front._turn()
    assert b"the body is no JSON" in bytes(wire.sent)


def test_a_head_is_kept_only_of_a_request_that_came_alone() -> None:
    for data in (STEP + STEP, STEP + b"\r\n", STEP[1:-1], b"\r\n\r\n" + STEP):
        heads = RepeatedHeads()
        heads.keep(data, HEAD, len(BODY))
        assert heads.divided(data) is None
    heads = RepeatedHeads()
    heads.keep(STEP + request("POST", "/step", b""), HEAD, 0)
    assert heads.divided(STEP[: -len(BODY)]) is None


def test_few_heads_are_kept_and_no_long_ones() -> None:
    heads = RepeatedHeads()
    several = [request("POST", "/step", BODY, f"session: {number}") for number in range(100)]
    for data in (request("POST", "/step", BODY, f"session: {'x' * 1024}"), *several):
        heads.keep(data, HEAD, len(BODY))
    assert heads.divided(several[-1]) == (HEAD, BODY)
    assert len([data for data in several if heads.divided(data)]) <= 16
    assert heads.divided(several[-1] + b"x") is None
