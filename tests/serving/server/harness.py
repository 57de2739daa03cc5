"""A server in a thread of the test, with small policies, on free ports of the loopback address."""

import asyncio
import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import pytest
import uvloop

from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.errors import CheckpointError
from penstock.games.served import AgentSteps
from penstock.inference import native, onnx
from penstock.policies.critic_fields import deployed
from penstock.serving.policy import Policy
from penstock.serving.run_policy import RunPolicy
from penstock.serving.server.admission.limits import Limits
from penstock.serving.server.admission.tokens import Tokens
from penstock.serving.server.assembly import open_endpoint, start_engine
from penstock.serving.server.connections.service import Service
from penstock.serving.server.endpoints.by_name import Endpoints
from penstock.serving.server.endpoints.endpoint import Endpoint
from penstock.serving.server.endpoints.follow import Follower
from penstock.serving.server.endpoints.recording import Recorder
from penstock.serving.server.engines.contract import StartEngine
from penstock.serving.server.metrics.prometheus import Metrics
from penstock.serving.server.policy.source import Source
from penstock.serving.server.protocols.gamecore.codecs import CODECS
from penstock.serving.server.protocols.gamecore.policy_steps import PolicySteps
from penstock.serving.server.server import Certificate, Ports, Server
from penstock.serving.server.steps import Steps
from penstock.types import Array, Box, Composite, Discrete, EnvRecipe, Spaces
from tests.children import stop

FIRST = "update-00000007"
TRAP, DEADLY = np.float32(0.5), np.float32(0.25)
"""Observations that consist of these numbers make `Failing` fail."""
DIAL = Box((2,), "float32", (-1.0,), (1.0,))
BOX = Box((3,), "float32", (-1.0,), (1.0,))
SPACES = {
    "plain": Spaces((("obs", BOX),), Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0))),
    "nested": Spaces((("obs.dial", DIAL), ("obs.which", Discrete(3, 1))), Discrete(4, 5)),
    "places": Spaces((("obs.0", BOX), ("obs.1.turn", Discrete(2))), Discrete(4)),
    "masked": Spaces((("action_mask", Box((4,), "uint8", (0.0,), (1.0,))), ("obs", BOX)), Discrete(4), "action_mask"),
    "parts": Spaces((("obs", BOX),), Composite(((("steer",), DIAL), (("gear",), Discrete(3))))),
    "memory": Spaces((("obs", BOX),), Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0))),
    "critic": Spaces((("obs.dial", DIAL), ("obs.state", BOX), ("obs.which", Discrete(3, 1))), Discrete(4, 5)),
}


class Around:
    """What a server needs of a policy, taken from another one. Classes below change how its sessions answer."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.spaces = policy.spaces
        self.fields = policy.fields
        self.batch = policy.batch


class Slow(Around):
    """A policy that takes its time."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__(policy)
        self._seconds = seconds

    def session(self, lanes: int = 1):
        session = self._policy.session(lanes)
        answer = session.answer

        def slowly(given):
            time.sleep(self._seconds)
            return answer(given)

        session.answer = slowly
        return session


class Held(Around):
    """A policy that holds the first process which sees `TRAP`: it writes its process id into this file, and waits."""

    def __init__(self, policy: Policy, file: str) -> None:
        super().__init__(policy)
        self._file = Path(file)

    def session(self, lanes: int = 1):
        session = self._policy.session(lanes)
        answer = session.answer

        def held(given):
            if (given["obs"] == TRAP).all(axis=1).any():
                with contextlib.suppress(FileExistsError), self._file.open("x") as file:
                    file.write(f"{os.getpid()}\n")
                    file.flush()
                    threading.Event().wait()
            return answer(given)

        session.answer = held
        return session


class Failing(Around):
    """A policy that raises an error when it sees `TRAP`. With `DEADLY` its process dies."""

    def session(self, lanes: int = 1):
        session = self._policy.session(lanes)
        answer = session.answer

        def trapped(given):
            if (given["obs"] == TRAP).all(axis=1).any():
                raise RuntimeError("trapped")
            if (given["obs"] == DEADLY).all(axis=1).any():
                os._exit(1)
            return answer(given)

        session.answer = trapped
        return session


def spoilt(policy: RunPolicy) -> RunPolicy:
    """The same policy with parameters that are NaN."""
    state = init_state(policy.spaces, PPOConfig(hidden_sizes=(8,)), 1)
    policy.backend.load({**state, "actor": np.full_like(state["actor"], np.nan)})
    return policy


def policy_of(kind: str, seed: int = 1) -> Policy:
    """A policy whose parameters are random, with actions that differ from observation to observation.

    That of the kind ``critic`` has a critic that sees the field ``state`` alone.
    """
    spaces = SPACES[kind]
    more = {"memory": {"model": "lstm", "memory_size": 4}, "critic": {"critic_obs": ("state",)}}
    config = PPOConfig(hidden_sizes=(8,), **more.get(kind, {}))
    state = init_state(spaces, config, 1)
    noise = np.random.default_rng(seed).normal(0.0, 0.5, state["actor"].shape)
    state["actor"] = state["actor"] + noise.astype(np.float32)
    found = deployed(spec(spaces, config).policy, spaces)
    backend = (onnx if kind in {"parts", "critic"} else native).build(found.graph)
    return RunPolicy(found.spaces, found.graph, backend, found.record(state), "made for the tests")


def load(run: str, checkpoint: str):
    """What `Source` calls, also in worker processes: a kind, ``slow:SECONDS:kind`` or ``held:FILE:kind``.

    Version 13 is damaged, 14 answers NaN, 15 fails when it sees `TRAP`, 16 has other spaces.
    """
    assert checkpoint.startswith("update-")
    if run.startswith("slow:"):
        _, seconds, kind = run.split(":")
        return Slow(policy_of(kind), float(seconds))
    if run.startswith("held:"):
        _, file, kind = run.split(":")
        return Held(policy_of(kind), file)
    number = int(checkpoint[-2:])
    if number == 13:
        raise CheckpointError("checkpoint 13 has been altered")
    found = policy_of(run, 1 if checkpoint == FIRST else number)
    match number:
        case 14:
            return spoilt(found)
        case 15:
            return Failing(found)
        case 16:
            return policy_of("masked")
    return found


def source_of(kind: str) -> Source:
    """Where the first version of a policy comes from."""
    return Source.of_checkpoint("tests.serving.server.harness:load", kind, FIRST)


@dataclass
class Running:
    http: int
    tcp: int
    grpc: int | None
    endpoint: Endpoint
    """The first policy, whose name is toy."""
    endpoints: Endpoints
    start: StartEngine
    server: Server
    service: Service
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.server.end)
        self.thread.join(120.0)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def serving(
    kind: str = "plain",
    *,
    also: Mapping[str, str] | None = None,
    workers: int = 0,
    balance: str = "shortest",
    codec: str = "json",
    token: str | None = None,
    admin_token: str | None = None,
    tcp_port: int = 0,
    grpc: bool = False,
    certificate: Certificate | None = None,
    collect: Path | None = None,
    explore: float = 0.0,
    agent: str | None = None,
    **limits: Any,
) -> Iterator[Running]:
    """Serve the policy toy, and others (name -> kind), for as long as the body runs. Toy may have an agent."""
    ready = threading.Event()
    found: list[object] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        bounds, metrics = Limits(**limits), Metrics()
        start = partial(start_engine, workers=workers, balance=balance, limits=bounds)
        kinds = {"toy": kind, **(also or {})}
        # As `Assembly` has it: an agent's session knows whether its client is silent for too long.
        own = bounds if agent is None else replace(bounds, idle_seconds=math.inf)
        of_each = {name: own if name == "toy" else bounds for name in kinds}
        opened = [await open_endpoint(name, source_of(one), of_each[name], start) for name, one in kinds.items()]
        endpoints = metrics.endpoints = Endpoints(opened)
        tokens = Tokens(() if token is None else (token.encode(),))
        administrators = None if admin_token is None else Tokens((admin_token.encode(),))
        recorders = {}
        if collect is not None:
            recorders["toy"] = Recorder("toy", collect, 1e9, opened[0].policy.spaces, explore, agent=agent or "")
        metrics.recorders = recorders.values()
        policies = PolicySteps(endpoints, CODECS[codec], recorders)
        steps: Steps = policies
        if agent is not None:
            opened[0].agent = agent
            recipes = {"toy": EnvRecipe(f"gamecore://{agent}", {}, ())}
            of_all = {"idle_seconds": bounds.idle_seconds, "recorders": recorders, "others": policies}
            steps = AgentSteps(loop, endpoints, recipes, **of_all)
        service = Service(loop, steps, lambda: endpoints.is_ready, bounds, tokens, metrics)
        ports = Ports("127.0.0.1", 0, tcp_port, 0 if grpc else None)
        server = Server(service, endpoints, ports, certificate, administrators)

        def say(line: str) -> None:
            places = (part.split("://") for part in line.split() if "://" in part)
            found_ports = {scheme.rstrip("s"): int(place.rpartition(":")[2]) for scheme, place in places}
            three = (found_ports["http"], found_ports["tcp"], found_ports.get("grpc"))
            running = Running(*three, opened[0], endpoints, start, server, service, loop, threading.current_thread())
            found.append(running)
            ready.set()

        await server.serve(say)
        if isinstance(steps, AgentSteps):
            await steps.close()
        policies.close()
        for recorder in recorders.values():
            recorder.close()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:
            found.append(error)
            ready.set()
            raise

    with pytest.MonkeyPatch.context() as patches:
        # The last call is for clients that are told to leave. Those of these tests leave by themselves.
        patches.setattr("penstock.serving.server.server._LAST_CALL_SECONDS", 0.0)
        thread = threading.Thread(target=run)
        thread.start()
        assert ready.wait(120.0)
        running = found[0]
        if isinstance(running, BaseException):
            raise running
        assert isinstance(running, Running)
        try:
            yield running
        finally:
            if thread.is_alive():
                running.end()


def call(server: Running, do: Callable[[], object]) -> object:
    """Do something in the thread of the server."""

    async def done() -> object:
        return do()

    return asyncio.run_coroutine_threadsafe(done(), server.loop).result(120.0)


def make_idle(server: Running) -> None:
    """Let the sessions be as old as if no client had asked for longer than the server waits for one."""

    def age() -> None:
        for session in server.endpoint.sessions:
            session.used -= server.service.limits.idle_seconds

    call(server, age)


def sweep_later(server: Running, seconds: float) -> None:
    """Let the server look after its connections as if so many seconds had passed."""

    def sweep() -> None:
        now = server.loop.time() + seconds
        for connection in list(server.server._service.connections):
            connection.sweep(now)

    call(server, sweep)


@contextlib.contextmanager
def halted(server: Running) -> Iterator[None]:
    """The only worker of the server does not run until `resume`: what it is asked stays unanswered."""
    stop(_worker(server))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError, IndexError):
            resume(server)


def resume(server: Running) -> None:
    os.kill(_worker(server), signal.SIGCONT)


def _worker(server: Running) -> int:
    return server.endpoint.stable.engine._workers[0].process.pid


def until(holds: Callable[[], object]) -> None:
    """Wait for what another thread or process does."""
    while not holds():
        time.sleep(0.005)


class Run:
    """A run that trains: its newest checkpoint is what the test says."""

    def __init__(self, server: Running, kind: str = "plain", share: float | None = None) -> None:
        self.newest = FIRST
        self._kind = kind
        self._server = server
        endpoint = server.endpoint

        def introduce(version) -> None:
            if share is None:
                endpoint.switch(version)
            else:
                endpoint.begin_canary(version, share)

        self._follower = Follower(endpoint, self._source, server.start, introduce)

    def publish(self, version: int) -> None:
        """Let the server see a checkpoint. The version before is let go first, as time would do it."""
        self.newest = f"update-{version:08d}"
        call(self._server, self._server.endpoint.sweep)
        asyncio.run_coroutine_threadsafe(self._follower.look(), self._server.loop).result(120.0)

    def _source(self) -> Source:
        return Source.of_checkpoint("tests.serving.server.harness:load", self._kind, self.newest)


REQUEST, REPLY = Struct("!6q"), Struct("!3q")


def frame(session: str, kind: str, body: bytes = b"", *, time: int = 0, key: str = "", token: str = "") -> bytes:
    """A request of Gamecore over TCP."""
    parts = [part.encode() for part in (session, kind, key, token)] + [body]
    return REQUEST.pack(*map(len, parts), time) + b"".join(parts)


class Game:
    """A client of Gamecore over TCP, as games have it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120.0)

    def __enter__(self) -> "Game":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *args: object, **settings: object) -> None:
        self.socket.sendall(frame(*args, **settings))

    def receive(self) -> tuple[str, bytes, int]:
        session, body, moment = REPLY.unpack(self.exactly(REPLY.size))
        return self.exactly(session).decode(), self.exactly(body), moment

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError(data)
            data += more
        return data

    def ask(self, *args: object, **settings: object) -> bytes:
        self.send(*args, **settings)
        return self.receive()[1]

    def is_closed(self) -> bool:
        """Whether the server ends the connection, with nothing left to read."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


MAGIC = bytes.fromhex("ff47414d434f5245")
GREETING, FRAME, STATUS = Struct("!8sHHI"), Struct("!QQQIBBH"), Struct("!QQHHI")
KINDS = {"": 0, "start": 1, "tick": 2, "stop": 3}


def second_frame(number: int, session: str, kind: str, body: bytes = b"", *, base: int = 0, encoding: int = 0) -> bytes:
    """A request of Gamecore over TCP, version 2."""
    name = session.encode()
    return FRAME.pack(number, base, len(body), len(name), KINDS[kind], encoding, 0) + name + body


class SecondGame(Game):
    """A client of Gamecore over TCP, version 2, written by hand from the protocol's description."""

    def __init__(self, port: int, token: str = "", version: int = 2) -> None:
        super().__init__(port)
        self.number = 0
        self.socket.sendall(GREETING.pack(MAGIC, version, 3, len(token)) + b"key" + token.encode())
        magic, self.version, self.status, size = GREETING.unpack(self.exactly(GREETING.size))
        self.text = self.exactly(size).decode()
        assert magic == MAGIC

    def reply(self) -> tuple[int, int, bytes, int]:
        """Request id, status, body, and after how many seconds to try again."""
        number, size, status, after, zero = STATUS.unpack(self.exactly(STATUS.size))
        assert zero == 0
        return number, status, self.exactly(size), after

    def request(self, session: str, kind: str, body: bytes = b"", **more: int) -> tuple[int, bytes]:
        """Status and body."""
        self.number += 1
        self.socket.sendall(second_frame(self.number, session, kind, body, **more))
        number, status, found, _ = self.reply()
        assert number == self.number
        return status, found


def observations(count: int, seed: int = 0) -> Array:
    """Observations of the policies ``plain`` and ``memory``: float32 ``[count, 3]``."""
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3)).astype(np.float32)


__all__ = [
    "Game",
    "Run",
    "Running",
    "SecondGame",
    "Slow",
    "call",
    "frame",
    "halted",
    "load",
    "make_idle",
    "observations",
    "policy_of",
    "resume",
    "second_frame",
    "serving",
    "source_of",
    "sweep_later",
    "until",
]
