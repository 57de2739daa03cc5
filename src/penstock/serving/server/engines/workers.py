"""Workers: processes that answer batches, each over a socket pair. An engine for policies that take long.

A worker keeps nothing: the carry of sessions travels with each batch and back. So when a worker dies, its batches are
asked again at another, and no session notices more than a delay.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from http import HTTPStatus
from socket import socketpair
from typing import cast

from penstock.errors import ResourceError
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.engines.balance import Balance
from penstock.serving.server.engines.batcher import Ask
from penstock.serving.server.engines.contract import Batch, Returns
from penstock.serving.server.engines.frames import HEAD, Layout, packed, size_of, unpacked
from penstock.serving.server.policy.answering import Answer, ServedPolicy
from penstock.serving.server.policy.source import Source

__all__ = ["Workers"]

log = logging.getLogger("penstock.serve")

_DEPTH = 2
"""Batches that a worker has at once: one that it answers, and one that waits in its socket."""
_PAUSES = (0.0, 0.5, 2.0, 5.0)
"""Seconds before a worker is started again, by how often one has died or was refused since one became ready."""
_END_SECONDS = 5.0
_LOAD_SECONDS = 120.0
"""A worker that has a core to itself, and has not loaded the policy within so long, hangs."""


class _Worker(asyncio.Protocol):
    """One process.

    Attributes:
        under_way: its batches by number, with the time when each was sent.
        rows: of these batches.
        place: its number among the workers; one that is started for a dead one has the dead one's.
        since: when it was started.
        is_ready: it has loaded the policy.
    """

    transport: asyncio.Transport
    process: asyncio.subprocess.Process

    def __init__(
        self, place: int, since: float, layout: Layout, *, told: Callable[["_Worker"], None], returns: Returns
    ) -> None:
        self.place = place
        self.since = since
        self.under_way: dict[int, tuple[Batch, float]] = {}
        self.rows = 0
        self.is_ready = False
        self.is_lost = False
        self.changed = asyncio.Event()
        self._layout = layout
        self._told = told
        self._returns = returns
        self._buffer = bytearray()

    @property
    def has_room(self) -> bool:
        """Whether it has fewer batches than it may."""
        return len(self.under_way) < _DEPTH

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do what asyncio's do, without deriving from them.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self.is_lost = True
        self.is_ready = False
        self.changed.set()
        self._told(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        buffer = self._buffer
        while len(buffer) >= HEAD.size:
            number, rows = HEAD.unpack_from(buffer)
            end = HEAD.size + size_of(self._layout.answers, rows)
            if len(buffer) < end:
                return
            body = bytes(buffer[HEAD.size : end])
            del buffer[:end]
            if number == 0:
                self.is_ready = True
                self.changed.set()
                self._told(self)
            else:
                self._answered(number, rows, body)

    def send(self, number: int, batch: Batch, now: float) -> None:
        questions = batch.questions
        rows = len(questions.first)
        self.under_way[number] = (batch, now)
        self.rows += rows
        arrays = {**questions.fields, "first": questions.first, **questions.carry}
        self.transport.write(packed(self._layout.questions, number, rows, arrays))

    def _answered(self, number: int, rows: int, body: bytes) -> None:
        batch, _ = self.under_way.pop(number)
        self.rows -= len(batch.questions.first)
        if rows:
            arrays = unpacked(self._layout.answers, rows, body)
            action = arrays.pop("action")
            self._returns.answered(batch, Answer(action, arrays))
        else:
            self._returns.refused(batch, Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the policy failed"))
        self._returns.free()


class Workers:
    """Answers batches in several processes.

    Args:
        source: of the policy.
        policy: the same policy, for its layout.
        count: how many processes.
        balance: chooses the process for each batch.
        limits: of the server.
        returns: gets the answers.
    """

    def __init__(  # noqa: PLR0917 - what an engine is made of
        self, source: Source, policy: ServedPolicy, count: int, balance: Balance, limits: Limits, returns: Returns
    ) -> None:
        self.restarts = 0
        self._balance = balance
        self._source = source
        self._layout = Layout.of(policy)
        self._count = count
        self._limits = limits
        self._returns = returns
        self._workers: list[_Worker] = []
        self._processes: list[asyncio.subprocess.Process] = []
        """All that may still run, or wait to be reaped: also those of lost workers."""
        self._numbers = 0
        self._failures = 0
        self._is_ending = False
        self._starting: set[asyncio.Task[_Worker]] = set()

    async def start(self) -> None:
        """Start all workers, and wait until each is ready.

        Raises:
            ResourceError: the system refuses a process; or one ended before it was ready, and has said why; or one
                was not ready in time.
        """
        try:
            await self._start_all()
        except BaseException:
            await self.close()
            raise

    async def _start_all(self) -> None:
        for worker in [await self._begin(place) for place in range(self._count)]:
            try:
                await asyncio.wait_for(worker.changed.wait(), self._load_seconds)
            except TimeoutError:
                late = f"worker {worker.process.pid} has not loaded the policy within {self._load_seconds:g} s"
                raise ResourceError(f"{late}; give --workers 0 to see where it hangs") from None
            if worker.is_lost:
                raise ResourceError("a worker process ended before it was ready; what it said is above")

    @property
    def _load_seconds(self) -> float:
        """How long a worker may take to load the policy. Several that load at once share the cores."""
        return _LOAD_SECONDS * max(1.0, self._count / (os.cpu_count() or 1))

    def is_free(self) -> bool:
        """Whether a worker has room for a batch."""
        return any(worker.has_room for worker in self._able())

    def is_ready(self) -> bool:
        """Whether a worker is able to answer."""
        return bool(self._able())

    def parts(self, asks: list[Ask]) -> list[list[Ask]]:
        """Cut a batch into parts. One worker answers each part."""
        return self._balance.parts(asks)

    def take(self, batch: Batch) -> None:
        """Give a batch to a worker."""
        worker = self._balance.choose(self._able(), batch.asks)
        self._numbers += 1
        worker.send(self._numbers, batch, asyncio.get_running_loop().time())

    def check(self, now: float) -> None:
        """Kill a worker that has not answered, or not loaded the policy, in time. Its batches go to another."""
        limit = self._limits.max_seconds
        for worker in self._workers:
            if any(now - since > limit for _, since in worker.under_way.values()):
                _kill(worker, f"has not answered within {limit:g} s")
            elif not worker.is_ready and now - worker.since > self._load_seconds:
                _kill(worker, f"has not loaded the policy within {self._load_seconds:g} s")

    async def close(self) -> None:
        """End all workers, and return when each of their processes is reaped."""
        self._is_ending = True
        for task in self._starting:
            task.cancel()
        # One of them may have begun its process already.
        await asyncio.gather(*self._starting, return_exceptions=True)
        finishing = {worker.process for worker in self._able()}
        # A worker leaves the list as soon as its socket is closed.
        for worker in list(self._workers):
            worker.transport.close()
        # An event loop reaps processes only while it runs: those of lost workers are awaited as well.
        for process in self._processes:
            if process not in finishing:
                # It was not ready, so it has no batch to finish. It may have ended already.
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()

    def _able(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.is_ready]

    async def _begin(self, place: int) -> _Worker:
        """Start one process.

        Raises:
            ResourceError: the system refuses it.
        """
        since = asyncio.get_running_loop().time()
        worker = _Worker(place, since, self._layout, told=self._told, returns=self._returns)
        with contextlib.ExitStack() as unless_begun:
            try:
                ours, theirs = socketpair()
                unless_begun.callback(ours.close)
                limits = self._limits
                sizes, source = json.dumps(limits.pad_batches), json.dumps(self._source._asdict())
                arguments = (str(theirs.fileno()), str(limits.max_batch), sizes, source)
                with theirs:
                    worker.process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        *("-m", "penstock.serving.server.engines.worker", *arguments),
                        pass_fds=(theirs.fileno(),),
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=sys.stderr,
                        start_new_session=True,
                    )
            except OSError as error:
                raise ResourceError(f"a worker process cannot be started: {error.strerror or error}") from error
            unless_begun.pop_all()
        self._processes = [*(one for one in self._processes if one.returncode is None), worker.process]
        await asyncio.get_running_loop().create_connection(lambda: worker, sock=ours)
        self._workers.append(worker)
        return worker

    def _told(self, worker: _Worker) -> None:
        """A worker is ready, or is gone."""
        if worker.is_lost and worker in self._workers:
            self._workers.remove(worker)
            self._mourn(worker)
        elif worker.is_ready:
            self._failures = 0
        self._returns.free()

    def _mourn(self, worker: _Worker) -> None:
        """A worker is gone: ask its batches again, and start another."""
        for batch, _ in worker.under_way.values():
            self._returns.lost(batch)
        if self._is_ending:
            return
        pause = self._pause()
        self.restarts += 1
        when = f"in {pause:g} s" if pause else "at once"
        log.warning("worker %d of %s has died; another starts %s", worker.process.pid, self._source.path, when)
        task = asyncio.get_running_loop().create_task(self._begin_after(pause, worker.place))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _pause(self) -> float:
        """Seconds before the next try to start a worker."""
        pause = _PAUSES[min(self._failures, len(_PAUSES) - 1)]
        self._failures += 1
        return pause

    async def _begin_after(self, seconds: float, place: int) -> _Worker:
        """Start one process, again and again until the system allows it."""
        while True:
            await asyncio.sleep(seconds)
            try:
                return await self._begin(place)
            except ResourceError as error:
                seconds = self._pause()
                log.warning("%s; the next try is in %g s", error, seconds)


def _kill(worker: _Worker, why: str) -> None:
    log.warning("worker %d %s: killed", worker.process.pid, why)
    with contextlib.suppress(ProcessLookupError):
        worker.process.kill()
    # A child of a user's module may hold its socket open, so its end alone would not be noticed.
    worker.transport.abort()
