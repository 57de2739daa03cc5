"""A server in a thread of the test, with a small policy, on free ports of the loopback address."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

import numpy as np
import uvloop

from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.errors import CheckpointError
from penstock.inference import native, onnx
from penstock.serving.policy import Policy
from penstock.serving.run_policy import RunPolicy
from penstock.serving.server.codecs import CODECS
from penstock.serving.server.endpoint import Endpoint
from penstock.serving.server.engines import OwnProcess
from penstock.serving.server.limits import Limits
from penstock.serving.server.metrics import Metrics
from penstock.serving.server.server import Certificate, Ports, Server
from penstock.serving.server.service import Service
from penstock.serving.server.source import Source
from penstock.serving.server.steps import PolicySteps
from penstock.serving.server.tokens import Tokens
from penstock.serving.server.workers import Workers
from penstock.types import Array, Box, Composite, Discrete, Spaces

FIRST = "update-00000007"
DIAL = Box((2,), "float32", (-1.0,), (1.0,))
BOX = Box((3,), "float32", (-1.0,), (1.0,))
SPACES = {
    "plain": Spaces((("obs", BOX),), Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0))),
    "nested": Spaces((("obs.dial", DIAL), ("obs.which", Discrete(3, 1))), Discrete(4, 5)),
    "places": Spaces((("obs.0", BOX), ("obs.1.turn", Discrete(2))), Discrete(4)),
    "masked": Spaces((("action_mask", Box((4,), "uint8", (0.0,), (1.0,))), ("obs", BOX)), Discrete(4), "action_mask"),
    "parts": Spaces((("obs", BOX),), Composite(((("steer",), DIAL), (("gear",), Discrete(3))))),
    "memory": Spaces((("obs", BOX),), Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0))),
}


class Slow:
    """A policy that takes its time."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        self._policy = policy
        self._seconds = seconds
        self.spaces = policy.spaces
        self.fields = policy.fields
        self.batch = policy.batch

    def session(self, lanes: int = 1):
        session = self._policy.session(lanes)
        answer = session.answer

        def slowly(given):
            time.sleep(self._seconds)
            return answer(given)

        session.answer = slowly
        return session


def policy_of(kind: str, seed: int = 1) -> Policy:
    """A policy whose parameters are random, with actions that differ from observation to observation."""
    spaces = SPACES[kind]
    memory = {"model": "lstm", "memory_size": 4} if kind == "memory" else {}
    config = PPOConfig(hidden_sizes=(8,), **memory)
    state = init_state(spaces, config, 1)
    noise = np.random.default_rng(seed).normal(0.0, 0.5, state["actor"].shape)
    state["actor"] = state["actor"] + noise.astype(np.float32)
    graph = spec(spaces, config).policy
    backend = onnx.build(graph, spaces) if kind == "parts" else native.build(graph)
    return RunPolicy(spaces, graph, backend, state, "made for the tests")


def load(run: str, checkpoint: str):
    """What `Source` calls, also in worker processes: ``run`` is a kind, or ``slow:SECONDS:kind``."""
    assert checkpoint.startswith("update-")
    if run.startswith("slow:"):
        _, seconds, kind = run.split(":")
        return Slow(policy_of(kind), float(seconds))
    if checkpoint == "update-00000013":
        raise CheckpointError("checkpoint 13 has been altered")
    return policy_of(run, 1 if checkpoint == FIRST else int(checkpoint[-2:]))


@dataclass
class Running:
    http: int
    tcp: int
    grpc: int | None
    endpoint: Endpoint
    server: Server
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.server.end)
        self.thread.join(20.0)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def serving(
    kind: str = "plain",
    *,
    workers: int = 0,
    codec: str = "json",
    token: str | None = None,
    grpc: bool = False,
    certificate: Certificate | None = None,
    **limits: float,
) -> Iterator[Running]:
    """Serve a policy for as long as the body runs."""
    ready = threading.Event()
    found: list[object] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        source = Source.of_checkpoint("tests.serving.server.harness:load", kind, FIRST)
        bounds, metrics, policy = Limits(**limits), Metrics(), source.policy()
        endpoint = Endpoint("toy", policy, source.version, bounds, metrics=metrics, loop=loop)
        metrics.endpoint = endpoint
        tokens = Tokens(() if token is None else (token.encode(),))
        if workers:
            endpoint.engine = Workers(source, policy, workers, bounds, endpoint)
            await endpoint.engine.start()
        else:
            endpoint.engine = OwnProcess(policy, source.version, bounds.max_batch, endpoint)
        steps = PolicySteps(endpoint, CODECS[codec](endpoint))
        service = Service(loop, steps, endpoint.engine.is_ready, bounds, tokens, metrics)
        server = Server(service, endpoint, Ports("127.0.0.1", 0, 0, 0 if grpc else None), certificate)

        def say(line: str) -> None:
            ports = {part.split("://")[0].rstrip("s"): int(part.rpartition(":")[2]) for part in line.split()[5:]}
            thread = threading.current_thread()
            found.append(Running(ports["http"], ports["tcp"], ports.get("grpc"), endpoint, server, loop, thread))
            ready.set()

        await server.serve(say)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:
            found.append(error)
            ready.set()
            raise

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60.0)
    running = found[0]
    if isinstance(running, BaseException):
        raise running
    assert isinstance(running, Running)
    try:
        yield running
    finally:
        if thread.is_alive():
            running.end()


REQUEST, REPLY = Struct("!6q"), Struct("!3q")


def frame(session: str, kind: str, body: bytes = b"", *, time: int = 0, key: str = "", token: str = "") -> bytes:
    """A request of Gamecore over TCP."""
    parts = [part.encode() for part in (session, kind, key, token)] + [body]
    return REQUEST.pack(*map(len, parts), time) + b"".join(parts)


class Game:
    """A client of Gamecore over TCP, as games have it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20.0)

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
    "Running",
    "SecondGame",
    "Slow",
    "frame",
    "load",
    "observations",
    "policy_of",
    "second_frame",
    "serving",
]
