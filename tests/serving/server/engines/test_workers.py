"""Worker processes: same answers, and no request is lost when one is killed under load."""

import asyncio
import errno
import http.client
import itertools
import json
import os
import signal
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.assembly import open_endpoint, start_engine
from tests.children import stop
from tests.serving.server.harness import (
    Game,
    Running,
    call,
    halted,
    make_idle,
    observations,
    policy_of,
    resume,
    serving,
    source_of,
    until,
)


def pids(server: Running) -> list[int]:
    return [worker.process.pid for worker in server.endpoint.stable.engine._workers]


def tick(obs) -> bytes:
    return json.dumps({"obs": np.asarray(obs).tolist()}).encode()


def play(port: int, name: str, rows, found: list) -> None:
    """One session over TCP, tick after tick."""
    with Game(port) as game:
        game.ask(name, "start")
        for row in rows:
            found.append(json.loads(game.ask(name, "tick", tick(row)))["action"])
        game.ask(name, "stop")


@pytest.mark.parametrize("pad_batches", ["none", "powers", (7, 40)])
def test_workers_answer_as_the_server_itself_does(pad_batches: Any) -> None:
    obs = observations(50)
    with serving("plain", workers=2, pad_batches=pad_batches) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
        connection.request("POST", "/step", tick(obs))
        found = json.loads(connection.getresponse().read())["action"]
    np.testing.assert_array_equal(np.array(found, np.float32), policy_of("plain")(obs))


def test_a_session_does_not_expire_because_its_answer_took_long() -> None:
    with serving(workers=1) as server, Game(server.tcp) as game:
        game.ask("g", "start")
        with halted(server):
            game.send("g", "tick", tick(observations(1)[0]))
            until(lambda: not server.endpoint.is_idle)
            make_idle(server)
            resume(server)
            game.receive()
        call(server, server.endpoint.sweep)
        assert "action" in json.loads(game.ask("g", "tick", tick(observations(1)[0])))


# Shorter: the one with memory has stateless requests beside it, too.
@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.nightly), "slow:0.005:memory"])
def test_kill_9_of_workers_under_load_loses_nothing(kind: str) -> None:
    """Sessions go on with their memory, and requests without a session are answered, whoever dies."""
    sessions, steps = 8, 120
    memory = kind != "plain"
    rows = [observations(steps, seed) for seed in range(sessions)]
    found: list[list] = [[] for _ in range(sessions)]
    stateless: list[int] = []
    over = threading.Event()

    def ask(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120.0)
        while not over.is_set():
            connection.request("POST", "/step", tick(rows[0][0]))
            reply = connection.getresponse()
            reply.read()
            stateless.append(reply.status)

    with serving(kind, workers=2) as server:
        threads = [
            threading.Thread(target=play, args=(server.tcp, f"s{number}", rows[number], found[number]))
            for number in range(sessions)
        ]
        if not memory:
            threads.append(threading.Thread(target=ask, args=(server.http,)))
        for thread in threads:
            thread.start()
        killed = 0
        while any(thread.is_alive() for thread in threads[:sessions]):
            time.sleep(0.05)
            alive = pids(server)
            if alive and killed < 4 and len(min(found, key=len)) > 20 * killed:
                os.kill(alive[killed % len(alive)], signal.SIGKILL)
                killed += 1
        over.set()
        for thread in threads:
            thread.join()
        assert killed >= 1
        assert server.endpoint.restarts >= killed
        assert server.endpoint.is_idle
    for number in range(sessions):
        alone = policy_of("memory" if memory else "plain").session(1)
        wanted = [alone.act(row[None])[0] for row in rows[number]]
        np.testing.assert_array_equal(np.array(found[number], np.float32), wanted)
    assert set(stateless) <= {200}


def test_a_worker_that_hangs_is_killed_and_another_answers_its_batch() -> None:
    with serving(workers=1) as server:
        (pid,) = pids(server)
        engine = server.endpoint.stable.engine
        stop(pid)
        connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
        connection.request("POST", "/step", tick(observations(1)[0]))
        until(lambda: engine._workers[0].under_way)
        call(server, lambda: engine.check(server.loop.time() + server.service.limits.max_seconds + 1.0))
        assert connection.getresponse().status == 200
        assert pids(server) != [pid]


def test_without_a_worker_the_server_is_not_ready() -> None:
    with serving(workers=1) as server:
        (pid,) = pids(server)
        os.kill(pid, signal.SIGKILL)
        statuses = set()
        while not (statuses == {200, 503} and server.endpoint.stable.engine.is_ready()):
            connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=120.0)
            connection.request("GET", "/v2/health/ready")
            statuses.add(connection.getresponse().status)
            time.sleep(0.02)


def test_the_processes_end_with_the_server() -> None:
    with serving(workers=2) as server:
        found = pids(server)
    for pid in found:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_lost_workers_and_those_that_are_being_started_end_with_the_server(started) -> None:
    """The first worker hangs when the server loses it. The second one is importing when the server ends."""
    with serving(workers=1) as server:
        (first,) = server.endpoint.stable.engine._workers
        stop(first.process.pid)
        call(server, first.transport.abort)
        while len(started()) < 2:
            time.sleep(0.01)
    assert started() == []


def refusing(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Let the system refuse these starts of a process, counted from 0."""
    start, count = asyncio.create_subprocess_exec, itertools.count()

    async def refused(*words: str, **settings: Any) -> asyncio.subprocess.Process:
        if next(count) in numbers:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return await start(*words, **settings)

    monkeypatch.setattr("penstock.serving.server.engines.workers.asyncio.create_subprocess_exec", refused)


def test_a_worker_whose_start_the_system_refuses_is_started_a_little_later(monkeypatch, caplog) -> None:
    with serving(workers=1) as server:
        (pid,) = pids(server)
        refusing(monkeypatch, 0, 1)
        os.kill(pid, signal.SIGKILL)
        until(lambda: server.endpoint.stable.engine.restarts)
        until(server.endpoint.stable.engine.is_ready)
        assert pids(server) != [pid]
    said = [line for line in caplog.messages if "cannot be started" in line]
    assert said[0].startswith("a worker process cannot be started: Resource temporarily unavailable; the next try is")
    assert len(said) == 2


def test_workers_of_which_one_cannot_be_started_leave_no_process(monkeypatch, started) -> None:
    refusing(monkeypatch, 1)

    async def start() -> None:
        limits = Limits()
        engines = partial(start_engine, workers=2, balance="shortest", limits=limits)
        await open_endpoint("toy", source_of("plain"), limits, engines)

    with pytest.raises(ResourceError, match="a worker process cannot be started"):
        asyncio.run(start())
    assert started() == []


def test_a_look_at_what_hangs_that_fails_is_not_the_last_one(monkeypatch, caplog) -> None:
    with serving(workers=1) as server:
        looks: list[float] = []

        def fails(now: float) -> None:
            looks.append(now)
            raise RuntimeError("no look this time")

        monkeypatch.setattr(server.endpoint.stable.engine, "check", fails)
        until(lambda: len(looks) >= 2)
    assert any("could not be looked after" in line for line in caplog.messages)
