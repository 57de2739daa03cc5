"""Puts a server together from the options of ``penstock serve``, and runs it."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from penstock.config.commands import ServeOptions
from penstock.experiments.best import find_checkpoint
from penstock.serving.server.access_log import AccessLog
from penstock.serving.server.codecs import CODECS
from penstock.serving.server.endpoint import Endpoint
from penstock.serving.server.engines import Engine, OwnProcess
from penstock.serving.server.follow import Follower
from penstock.serving.server.limits import Limits
from penstock.serving.server.metrics import Metrics
from penstock.serving.server.server import Certificate, Ports, Server
from penstock.serving.server.service import Service
from penstock.serving.server.source import Source
from penstock.serving.server.steps import PolicySteps
from penstock.serving.server.tokens import Tokens
from penstock.serving.server.workers import Workers

__all__ = ["Assembly"]


_LINES_A_SECOND = 20


class Assembly:
    """One run of ``penstock serve``.

    Args:
        options: of the command line, which fit together.
        source: of the policy that is served first.
    """

    def __init__(self, options: ServeOptions, source: Source) -> None:
        self._options = options
        self._source = source

    def run(self, say: Callable[[str], object]) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            UsageError: a file or the policy cannot be used.
            ResourceError: a port cannot be used.
        """
        logging.basicConfig(stream=sys.stderr, format="penstock serve: %(message)s", level=logging.WARNING)
        logging.getLogger("penstock.serve").addFilter(AtMost(_LINES_A_SECOND))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(say))

    async def _serve(self, say: Callable[[str], object]) -> None:
        options = self._options
        tokens = Tokens.read(options.token_file)
        ports = Ports(options.host, options.port, options.tcp_port, options.grpc_port)
        loop = asyncio.get_running_loop()
        policy, version = self._source.policy(), self._source.version
        limits, metrics = limits_of(options), Metrics()
        endpoint = Endpoint(options.name, policy, version, limits, metrics=metrics, loop=loop)
        metrics.endpoint = endpoint
        codec = CODECS[options.codec](endpoint)
        access_log = None if options.access_log is None else AccessLog(options.access_log)
        endpoint.engine = await self._engine(endpoint, limits)
        steps = PolicySteps(endpoint, codec)
        service = Service(loop, steps, endpoint.engine.is_ready, limits, tokens, metrics, access_log)
        server = Server(service, endpoint, ports, _certificate(options))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.end)
        # What exists by now stays: the garbage collector need not look at it in the middle of a request.
        gc.freeze()
        following = loop.create_task(self._follow(endpoint)) if options.follow else None
        try:
            await server.serve(say)
        finally:
            if following is not None:
                following.cancel()
            gc.unfreeze()

    async def _follow(self, endpoint: Endpoint) -> None:
        run = Path(self._source.path)
        await Follower(endpoint, self._source, lambda: find_checkpoint(run).name).run()

    async def _engine(self, endpoint: Endpoint, limits: Limits) -> Engine:
        if self._options.workers == 0:
            return OwnProcess(endpoint.policy, endpoint.version, limits.max_batch, endpoint)
        workers = Workers(self._source, endpoint.policy, self._options.workers, limits, endpoint)
        await workers.start()
        return workers


class AtMost(logging.Filter):
    """Lets so many lines a second pass. Whoever breaks many connections must not fill the disk."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._lines = lines
        self._second = 0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written. The last one of its second says that others may be left out."""
        second = int(record.created)
        self._count = 1 if second != self._second else self._count + 1
        self._second = second
        if self._count == self._lines:
            record.msg = f"{record.msg}; further lines of this second are left out"
        return self._count <= self._lines


def limits_of(options: ServeOptions) -> Limits:
    """The limits among the options."""
    return Limits(
        max_batch=options.max_batch,
        max_wait=options.max_wait,
        max_body=options.max_body,
        max_sessions=options.max_sessions,
        max_queue=options.max_queue,
        max_connections=options.max_connections,
        max_seconds=options.max_seconds,
        idle_seconds=options.idle_seconds,
        grace_seconds=options.grace_seconds,
    )


def _certificate(options: ServeOptions) -> Certificate | None:
    if options.tls_cert is None or options.tls_key is None:
        return None
    return Certificate(Path(options.tls_cert).expanduser(), Path(options.tls_key).expanduser())
