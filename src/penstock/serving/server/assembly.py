"""Puts a server together from the options of ``penstock serve``, and runs it."""

import asyncio
import contextlib
import gc
import logging
import math
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import uvloop

from penstock.config.commands import ServeOptions
from penstock.envs.games import agent_name
from penstock.errors import ConfigError, UsageError
from penstock.paths import expanded
from penstock.registry import AGENT_STEPS, load
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.scratch import scratch_folder
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.tokens import Tokens
from penstock.serving.server.connections.service import Service
from penstock.serving.server.endpoints.by_name import Endpoints
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.serving.server.endpoints.follow import Follower
from penstock.serving.server.endpoints.recording import Recorder
from penstock.serving.server.endpoints.version import Version
from penstock.serving.server.engines.balance import BALANCES
from penstock.serving.server.engines.contract import Engine, Returns, StartEngine
from penstock.serving.server.engines.own_process import OwnProcess
from penstock.serving.server.engines.workers import Workers
from penstock.serving.server.metrics.access_log import AccessLog
from penstock.serving.server.metrics.prometheus import Metrics
from penstock.serving.server.policy.acceptance import accepted
from penstock.serving.server.policy.answering import ServedPolicy
from penstock.serving.server.policy.copies import BundleCopies
from penstock.serving.server.policy.source import Source
from penstock.serving.server.protocols.gamecore.codecs import CODECS
from penstock.serving.server.protocols.gamecore.policy_steps import PolicySteps
from penstock.serving.server.server import Certificate, Ports, Server
from penstock.serving.server.steps import Steps
from penstock.serving.verification import Limits as AnswerLimits
from penstock.types import EnvRecipe

__all__ = ["Assembly", "Origin", "first_endpoint", "limits_of", "open_endpoint", "start_engine"]


_TRIES = 10
"""A run that trains may remove a checkpoint while it is loaded. Then the newest one is loaded, at most so often."""
_LINES_A_SECOND = 20
_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Origin(NamedTuple):
    """Where the versions of one policy come from."""

    first: Source
    newest: Callable[[], Source]
    is_newest: bool = False
    """``first`` was taken because it was the newest one. A later one may take its place."""


class Assembly:
    """One run of ``penstock serve``.

    Args:
        options: of the command line, which fit together.
        sources: of the policies, by the names under which they are served.
        agents: of the policies whose clients play through one, by the same names.
    """

    def __init__(self, options: ServeOptions, sources: Mapping[str, Source], agents: Mapping[str, EnvRecipe]) -> None:
        self._options = options
        self._sources = sources
        self._agents = agents

    def run(self, say: Callable[[str], object]) -> None:
        """Serve until SIGTERM, SIGINT or SIGHUP. An ignored SIGHUP stays ignored, as nohup wants it.

        Raises:
            UsageError: a file or the policy cannot be used.
            ResourceError: a port cannot be used.
        """
        logging.basicConfig(stream=sys.stderr, format="penstock serve: %(message)s", level=logging.WARNING)
        log, at_most = logging.getLogger("penstock.serve"), AtMost(_LINES_A_SECOND)
        with contextlib.ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            log.addFilter(at_most)
            stack.callback(log.removeFilter, at_most)
            origins = {name: self._origin(source, stack) for name, source in self._sources.items()}
            runner.run(self._serve(say, origins))

    async def _serve(self, say: Callable[[str], object], origins: Mapping[str, Origin]) -> None:
        options = self._options
        tokens = Tokens.read(options.token_file, "--token_file")
        flag = "--admin_token_file"
        administrators = None if options.admin_token_file is None else Tokens.read(options.admin_token_file, flag)
        ports = Ports(options.host, options.port, options.tcp_port, options.grpc_port)
        loop = asyncio.get_running_loop()
        limits, metrics = limits_of(options), Metrics()
        access_log = None if options.access_log is None else AccessLog(options.access_log)
        start = partial(start_engine, workers=options.workers, balance=options.balance, limits=limits)
        # Before any worker process starts.
        folders = _folders(options, origins)
        endpoints = metrics.endpoints = Endpoints(await self._opened(origins, limits, start))
        try:
            with _recording(options, endpoints, folders) as recorders:
                metrics.recorders = recorders
                async with self._steps(endpoints, {one.name: one for one in recorders}) as steps:
                    service = Service(loop, steps, lambda: endpoints.is_ready, limits, tokens, metrics, access_log)
                    server = Server(service, endpoints, ports, _certificate(options), administrators)
                    await self._run(server, endpoints, origins, start, say)
        except BaseException:
            # The server closes them at its end, but it may not have begun. To close them twice changes nothing.
            await _closed(endpoints)
            raise

    async def _opened(self, origins: Mapping[str, Origin], limits: Limits, start: StartEngine) -> list[Endpoint]:
        opened: list[Endpoint] = []
        # If clients play through an agent, the agent's sessions ask the policy. They end if a client is silent for
        # too long. So the policy's own sessions have no such limit.
        through_agent = replace(limits, idle_seconds=math.inf)
        try:
            for name, origin in origins.items():
                agent = self._agents.get(name)
                opened.append(await first_endpoint(name, origin, limits if agent is None else through_agent, start))
                opened[-1].agent = None if agent is None else agent_name(agent)
        except BaseException:
            await _closed(opened)
            raise
        return opened

    @contextlib.asynccontextmanager
    async def _steps(self, endpoints: Endpoints, recorders: Mapping[str, Recorder]) -> AsyncIterator[Steps]:
        """What answers Gamecore. At its end all sessions end."""
        options = self._options
        policies = PolicySteps(endpoints, CODECS[options.codec], recorders)
        try:
            if not self._agents:
                yield policies
                return
            loop = asyncio.get_running_loop()
            steps = load(AGENT_STEPS)(
                loop, endpoints, self._agents, idle_seconds=options.idle_seconds, recorders=recorders, others=policies
            )
            try:
                yield steps
            finally:
                await steps.close()
        finally:
            policies.close()

    async def _run(
        self,
        server: Server,
        endpoints: Endpoints,
        origins: Mapping[str, Origin],
        start: StartEngine,
        say: Callable[[str], object],
    ) -> None:
        """Serve until a signal comes. Meanwhile, with ``--follow``, look for newer versions."""
        loop = asyncio.get_running_loop()
        is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        endings = [number for number in _ENDINGS if not (is_kept and number == signal.SIGHUP)]
        for number in endings:
            loop.add_signal_handler(number, server.end)
        # What exists by now stays: the garbage collector need not look at it in the middle of a request.
        gc.freeze()
        following = [
            loop.create_task(self._follow(endpoint, origins[endpoint.name], start))
            for endpoint in endpoints
            if self._options.follow
        ]
        try:
            await server.serve(say)
        finally:
            for task in following:
                task.cancel()
            # gRPC keeps the event loop, and so its handlers, until the process ends. If a handler still pointed to the
            # server, nanobind would print a line for each native policy that is left then.
            for number in endings:
                loop.add_signal_handler(number, _nothing)
            gc.unfreeze()

    async def _follow(self, endpoint: Endpoint, origin: Origin, start: StartEngine) -> None:
        share = self._options.canary
        introduce: Callable[[Version], None] = endpoint.switch
        if share is not None:
            introduce = partial(endpoint.begin_canary, share=share)
        await Follower(endpoint, origin.newest, start, introduce).run()

    def _origin(self, source: Source, stack: contextlib.ExitStack) -> Origin:
        # A worker that is started again reads the bundle once more, and somebody may have exported into its folder.
        is_read_again = self._options.follow or self._options.workers
        if source.checkpoint is not None or not is_read_again:
            is_newest = self._options.checkpoint in {None, "latest"} and source.checkpoint is not None
            return Origin(source, partial(_newest_checkpoint, source), is_newest)
        folder = stack.enter_context(scratch_folder("penstock-serve-"))
        copies = BundleCopies(source.loader, Path(source.path), folder)
        return Origin(copies.newest(), copies.newest)


def _newest_checkpoint(source: Source) -> Source:
    return Source.of_checkpoint(source.loader, source.path, find_checkpoint(Path(source.path)).name)


async def _closed(endpoints: Iterable[Endpoint]) -> None:
    """End all engines."""
    await asyncio.gather(*(endpoint.close() for endpoint in endpoints))


async def first_endpoint(name: str, origin: Origin, limits: Limits, start: StartEngine) -> Endpoint:
    """As `open_endpoint`. A run that trains may have removed the checkpoint meanwhile: then the newest one is taken."""
    source = origin.first
    for _ in range(_TRIES if origin.is_newest else 0):
        try:
            return await open_endpoint(name, source, limits, start)
        except UsageError:
            newest = origin.newest()
            if newest == source:
                raise
            source = newest
    return await open_endpoint(name, source, limits, start)


async def open_endpoint(name: str, source: Source, limits: Limits, start: StartEngine) -> Endpoint:
    """An endpoint that is able to answer.

    Args:
        name: of the policy, for clients.
        source: of its first version.
        limits: of the server.
        start: starts the engine.

    Raises:
        UsageError: the policy cannot be used, or its answers are not as they must be.
        ResourceError: a worker process ended before it was ready.
    """
    policy = accepted(source, limits.quantized)
    endpoint = Endpoint(name, policy, limits, loop=asyncio.get_running_loop())
    version = endpoint.made(source.version, policy)
    version.engine = await start(source, policy, version)
    endpoint.begin(version)
    return endpoint


async def start_engine(
    source: Source, policy: ServedPolicy, returns: Returns, *, workers: int, balance: str, limits: Limits
) -> Engine:
    """The engine of one version: worker processes, or the process that owns the sockets.

    Args:
        source: of the version.
        policy: the same version, loaded.
        returns: gets the answers.
        workers: how many processes; 0: none.
        balance: how they share the questions, a name of `BALANCES`.
        limits: of the server.

    Raises:
        ResourceError: a worker process ended before it was ready.
    """
    if workers == 0:
        return OwnProcess(policy, limits, returns)
    engine = Workers(source, policy, workers, BALANCES[balance](workers), limits, returns)
    await engine.start()
    return engine


class AtMost(logging.Filter):
    """Lets a few lines a second pass. Whoever breaks many connections must not fill the disk."""

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
        pad_batches=options.pad_batches,
        max_body=options.max_body,
        max_sessions=options.max_sessions,
        max_queue=options.max_queue,
        max_connections=options.max_connections,
        max_seconds=options.max_seconds,
        idle_seconds=options.idle_seconds,
        grace_seconds=options.grace_seconds,
        quantized=AnswerLimits(options.quantized_agreement, options.quantized_error),
    )


def _folders(options: ServeOptions, names: Iterable[str]) -> dict[str, Path]:
    """A folder for the episodes of each policy, by the names of the policies; empty: no episodes are kept.

    Raises:
        ConfigError: a folder cannot be made, or not be written.
    """
    if options.collect is None:
        return {}
    folders = {name: expanded(options.collect) / name for name in names}
    for folder in folders.values():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder, buffering=0) as trial:
                trial.write(b"\0")
        except OSError as error:
            raise ConfigError(f"--collect {folder} cannot be written: {error.strerror or error}") from None
    return folders


@contextlib.contextmanager
def _recording(options: ServeOptions, endpoints: Endpoints, folders: Mapping[str, Path]) -> Iterator[list[Recorder]]:
    """What keeps the episodes of each policy that has a folder for them. At the end everything is written."""
    with contextlib.ExitStack() as stack:
        recorders = []
        for name, folder in folders.items():
            endpoint = endpoints.find(name)
            spaces, agent = endpoint.policy.spaces, endpoint.agent or ""
            recorder = Recorder(name, folder, options.collect_bytes, spaces, options.explore, agent=agent)
            stack.callback(recorder.close)
            recorders.append(recorder)
        yield recorders


def _certificate(options: ServeOptions) -> Certificate | None:
    if options.tls_cert is None or options.tls_key is None:
        return None
    return Certificate(expanded(options.tls_cert), expanded(options.tls_key))


def _nothing() -> None:
    """A server that has ended is not ended again."""
