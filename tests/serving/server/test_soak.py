"""The short form of ``benchmarks/soak/serving.py``: visits of all kinds leave nothing behind in the server."""

import asyncio
import gc
import logging
import sys
import time

import pytest

from benchmarks.soak.traffic import Traffic
from penstock.serving.server.metrics.prometheus import Metrics
from tests.serving.server.harness import Running, make_idle, serving

REQUESTS = 600
"""A busy machine takes longer for them."""
SECONDS = 0.25
RATE = 2000.0
"""Requests a second, at most."""
BLOCKS = 0.5
"""Blocks of memory that each request may leave behind. What keeps one object for each leaves at least one."""


@pytest.fixture(autouse=True)
def _no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest keeps what is logged."""
    monkeypatch.setattr(logging.getLogger("penstock.serve"), "disabled", True)


def left_behind(server: Running) -> float:
    """Blocks of memory of this process, server and clients, that each request has left behind."""
    traffic = Traffic(server.http, server.tcp, "toy")

    def answer(requests: int) -> None:
        while traffic.requests < requests:
            asyncio.run(traffic.go_on(SECONDS, clients=7, rate=RATE))

    answer(REQUESTS // 2)
    before, requests = blocks(server), traffic.requests
    answer(requests + REQUESTS)
    return (blocks(server) - before) / (traffic.requests - requests)


def blocks(server: Running) -> int:
    """Blocks of memory, once nobody is there."""
    while server.server._service.connections or len(server.endpoint.sessions):
        make_idle(server)
        time.sleep(0.02)
    gc.collect()
    return sys.getallocatedblocks()


def test_visits_leave_nothing_behind() -> None:
    with serving("memory", grace_seconds=1000.0) as server:
        assert left_behind(server) < BLOCKS


def test_objects_that_are_kept_for_each_request_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    count = Metrics.request

    def counted(metrics: Metrics, *arguments: object) -> None:
        # What else this process lets go meanwhile may hide a single one.
        kept.append([object() for _ in range(4)])
        count(metrics, *arguments)

    monkeypatch.setattr(Metrics, "request", counted)
    with serving("memory") as server:
        assert left_behind(server) > BLOCKS
