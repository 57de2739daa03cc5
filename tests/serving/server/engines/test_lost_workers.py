"""What becomes of a worker's batches and of its place when it is lost, with processes that the test plays itself."""

import asyncio
import os
from collections.abc import Callable
from socket import socket
from typing import Any

import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.engines.balance import Shortest
from penstock.serving.server.engines.batcher import Ask
from penstock.serving.server.engines.contract import Batch
from penstock.serving.server.engines.frames import HEAD
from penstock.serving.server.engines.workers import Workers
from penstock.serving.server.policy.answering import Questions
from tests.serving.server.harness import observations, policy_of, source_of

READY = HEAD.pack(0, 0)


class Process:
    """A process that has ended already."""

    pid, returncode = 1, 0

    def kill(self) -> None:
        raise ProcessLookupError

    async def wait(self) -> int:
        return 0


class Returns:
    """Counts the batches that came back."""

    refusals = losses = 0

    def refused(self, *_: Any) -> None:
        self.refusals += 1

    def lost(self, *_: Any) -> None:
        self.losses += 1

    def free(self) -> None:
        """Nothing waits."""


class Stage:
    """Workers whose sockets the test holds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.held: list[socket] = []
        self.returns = Returns()
        policy = policy_of("plain")
        self.engine = Workers(source_of("plain"), policy, count, Shortest(count), Limits(), self.returns)  # type: ignore[arg-type]
        monkeypatch.setattr("penstock.serving.server.engines.workers.asyncio.create_subprocess_exec", self._begun)

    async def _begun(self, *words: str, **_: Any) -> Process:
        self.held.append(socket(fileno=os.dup(int(words[3]))))
        return Process()

    async def start(self) -> None:
        starting = asyncio.ensure_future(self.engine.start())
        await until(lambda: len(self.held) == self.engine._count)
        for worker in self.held:
            worker.sendall(READY)
        await starting

    async def end(self) -> None:
        for worker in self.held:
            worker.close()
        await self.engine.close()

    def ask(self) -> None:
        fields = {"obs": np.asarray(observations(1), np.float32)}
        self.engine.take(Batch([Ask(fields, 1, None, None, 0.0)], Questions(fields, np.ones(1, np.bool_), {}), 0.0))  # type: ignore[arg-type]


async def until(condition: Callable[[], object]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


def test_a_dead_worker_whose_child_holds_its_socket_gives_its_batches_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        stage = Stage(monkeypatch, 1)
        await stage.start()
        stage.ask()
        stage.engine.check(asyncio.get_running_loop().time() + Limits.max_seconds + 1.0)
        await until(lambda: stage.returns.losses == 1 and len(stage.held) == 2)
        await stage.end()

    asyncio.run(play())


def test_a_worker_that_hangs_while_it_loads_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        stage = Stage(monkeypatch, 1)
        try:
            await asyncio.wait_for(stage.engine.start(), 30.0)
        finally:
            await stage.end()

    monkeypatch.setattr("penstock.serving.server.engines.workers._LOAD_SECONDS", 0.01)
    with pytest.raises(ResourceError, match=r"^worker 1 has not loaded the policy within 0\.01 s; give --workers 0"):
        asyncio.run(play())


def test_a_worker_that_hangs_while_it_loads_gives_its_place_to_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        stage = Stage(monkeypatch, 1)
        await stage.start()
        stage.held[0].close()
        await until(lambda: len(stage.held) == 2 and stage.engine._workers)
        stage.engine.check(asyncio.get_running_loop().time() + 100.0)
        assert stage.engine.restarts == 1
        stage.engine.check(asyncio.get_running_loop().time() + 121.0)
        await until(lambda: stage.engine.restarts == 2)
        await stage.end()

    asyncio.run(play())
    assert "worker 1 has not loaded the policy within 120 s: killed" in caplog.messages


def test_answers_of_one_worker_do_not_shorten_the_pause_before_another_is_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        stage = Stage(monkeypatch, 2)
        await stage.start()
        stage.held[1].close()
        await until(lambda: len(stage.held) == 3)
        stage.ask()
        stage.held[0].sendall(HEAD.pack(1, 0))
        await until(lambda: stage.returns.refusals == 1)
        # It dies before it is ready.
        stage.held[2].close()
        await until(lambda: stage.engine.restarts == 2)
        await stage.end()

    asyncio.run(play())
    died = [line.partition("; ")[2] for line in caplog.messages if "has died" in line]
    assert died == ["another starts at once", "another starts in 0.5 s"]
