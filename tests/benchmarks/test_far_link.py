"""The switch between far hosts, with sockets in place of their network cards."""

import select
import socket
import time
from collections.abc import Iterator

import pytest

from benchmarks.far_link import Far, switch

A, B, C, ALL = b"aaaaaa", b"bbbbbb", b"cccccc", b"\xff" * 6


@pytest.fixture
def hosts(request: pytest.FixtureRequest) -> Iterator[list[socket.socket]]:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3)]
    for _, outer in pairs:
        outer.setblocking(False)
    running = switch([outer.fileno() for _, outer in pairs], request.param)
    try:
        yield [inner for inner, _ in pairs]
    finally:
        running.kill()
        running.wait()
        for inner, outer in pairs:
            inner.close()
            outer.close()


def received(hosts: list[socket.socket], seconds: float) -> dict[int, bytes]:
    """What has come to each host after some time."""
    time.sleep(seconds)
    ready, _, _ = select.select(hosts, [], [], 0)
    return {hosts.index(host): host.recv(100) for host in ready}


@pytest.mark.parametrize("hosts", [Far(0.2, 0.0)], indirect=True)
def test_frames_arrive_late_at_the_host_that_they_are_for(hosts: list[socket.socket]) -> None:
    sent = time.monotonic()
    hosts[0].send(ALL + A + b"who is b?")
    ready, _, _ = select.select([hosts[1]], [], [], 30)
    assert ready
    assert time.monotonic() - sent >= 0.2
    assert received(hosts, 0.5) == {1: ALL + A + b"who is b?", 2: ALL + A + b"who is b?"}
    # The switch knows by now behind which device a is.
    hosts[1].send(A + B + b"i am")
    ready, _, _ = select.select([hosts[0]], [], [], 30)
    assert ready
    assert received(hosts, 0.5) == {0: A + B + b"i am"}


@pytest.mark.parametrize("hosts", [Far(0.0, 1.0)], indirect=True)
def test_lost_frames_arrive_nowhere(hosts: list[socket.socket]) -> None:
    hosts[0].send(B + A + b"hello")
    assert received(hosts, 1.0) == {}
