"""Fuzzes what reads a client's bytes, guided by coverage (atheris): ``python -m tests.serving.server.fuzz_frames``.

``make fuzz-frames`` runs it for a minute. Each target takes bytes and raises an error if what they reach does:

- ``tcp``: a connection of Gamecore over TCP, versions 1 and 2, with sessions and deltas.
- ``http``: a connection of HTTP with Gamecore and the Open Inference Protocol, whose tensors are JSON or binary.
- ``grpc``: the message of a call of the Open Inference Protocol over gRPC. Its first byte chooses the call.
- ``delta``: a delta against a base.
- ``mlagents``: messages of a game of ML-Agents (`tests/envs/fuzz_mlagents.py`).
- ``dm_env_rpc``: answers of a server of dm_env_rpc (`tests/envs/fuzz_dm_env_rpc.py`).

`test_fuzz_frames.py` runs the targets without atheris. An input that fails is written to ``build/fuzz/``:
``python -m tests.serving.server.fuzz_frames tcp FILE`` repeats it.
"""

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from tests.envs import fuzz_dm_env_rpc, fuzz_mlagents
from tests.serving.server.fuzz_seeds import CALLS, PAIR, seeds

SECONDS = 60
ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build/fuzz"
LIMIT = 4096
NATIVE = ("delta",)


class Told(logging.Handler):
    """An error that a protocol has caught and logged is an error of the target."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            raise AssertionError(record.getMessage()) from (record.exc_info or (None, None))[1]


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """What the server logs as an error is raised. Its warnings, of clients that say nonsense, are not shown."""
    log, told = logging.getLogger("penstock.serve"), Told()
    log.addHandler(told)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = True
        log.removeHandler(told)


class Wire(asyncio.Transport):
    """A client that reads everything at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.sent = bytearray()
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.sent += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Nothing: nobody looks."""

    def pause_reading(self) -> None:
        """Nothing: what was sent has arrived."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Front:
    """A server without sockets, whose requests are answered between two looks of the event loop."""

    def __init__(self) -> None:
        from penstock.serving.server.admission.limits import Limits
        from penstock.serving.server.admission.tokens import Tokens
        from penstock.serving.server.connections.service import Service
        from penstock.serving.server.endpoints.by_name import Endpoints
        from penstock.serving.server.endpoints.endpoint import Endpoint
        from penstock.serving.server.engines.own_process import OwnProcess
        from penstock.serving.server.metrics.prometheus import Metrics
        from penstock.serving.server.protocols.gamecore.codecs import CODECS
        from penstock.serving.server.protocols.gamecore.policy_steps import PolicySteps
        from penstock.serving.server.protocols.open_inference.grpc.calls import Calls
        from penstock.serving.server.protocols.open_inference.models import Models
        from penstock.serving.server.server import Ports, Server
        from tests.serving.server.harness import policy_of

        self.loop = asyncio.new_event_loop()
        limits, metrics, policy = Limits(max_body=LIMIT, max_sessions=8), Metrics(), policy_of("plain")
        self.endpoint = Endpoint("toy", policy, limits, loop=self.loop)
        version = self.endpoint.made(7, policy)
        version.engine = OwnProcess(policy, limits, version)
        self.endpoint.begin(version)
        endpoints = metrics.endpoints = Endpoints([self.endpoint])
        steps = PolicySteps(endpoints, CODECS["json"], {})
        self.service = Service(self.loop, steps, lambda: True, limits, Tokens(()), metrics)
        self.route = Server(self.service, endpoints, Ports("", 0, None, None), None, None)._route()
        self.calls = Calls(self.service, Models(endpoints))

    def exchange(self, connection, data: bytes) -> bytes:
        """All that is replied to these bytes, which arrive in two parts, from a client that then is gone."""
        wire = Wire()
        connection.connection_made(wire)
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            if part and not wire.is_closed:
                connection.data_received(part)
                self._turn()
        if not wire.is_closed:
            connection.eof_received()
        self._turn()
        connection.connection_lost(None)
        assert not self.service.connections
        self._leave_nothing()
        return bytes(wire.sent)

    def call(self, name: str, data: bytes) -> object:
        """The reply to a call over gRPC; a refusal is raised."""
        try:
            return self.loop.run_until_complete(self.calls.by_name[name](data))
        finally:
            self._leave_nothing()

    def _leave_nothing(self) -> None:
        assert self.endpoint.is_idle
        for session in list(self.endpoint.sessions):
            self.endpoint.stop(session.key, lambda: None)

    def _turn(self) -> None:
        """Let the event loop do what is due; a batch leaves one call later than its requests came."""
        for _ in range(3):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()


def targets() -> Mapping[str, Callable[[bytes], None]]:
    """What is fuzzed, by name."""
    from penstock.gamecore.delta import DeltaError, decode, encode
    from penstock.serving.server.admission.refusal import Refusal
    from penstock.serving.server.connections.http import HttpConnection
    from penstock.serving.server.protocols.gamecore.tcp import GamecoreConnection

    front = Front()

    def tcp(data: bytes) -> None:
        front.exchange(GamecoreConnection(front.service), data)

    def http(data: bytes) -> None:
        reply = front.exchange(HttpConnection(front.service, front.route), data)
        assert not reply or reply.startswith(b"HTTP/1.1 ")

    def grpc(data: bytes) -> None:
        try:
            front.call(CALLS[data[0] % len(CALLS)] if data else CALLS[0], data[1:])
        except Refusal as refusal:
            status = int(refusal.status)
        else:
            status = 200
        # All that is wrong here is the client's request.
        assert status < 500

    def delta(data: bytes) -> None:
        base, change = divided(data)
        try:
            body = decode(base, change, LIMIT)
        except DeltaError:
            return
        assert len(body) <= LIMIT
        again = encode(base, body)
        assert again is None or decode(base, again, LIMIT) == body

    simulators = {"mlagents": fuzz_mlagents.target(), "dm_env_rpc": fuzz_dm_env_rpc.target()}
    return {"tcp": tcp, "http": http, "grpc": grpc, "delta": delta, **simulators}


def divided(data: bytes) -> tuple[bytes, bytes]:
    """A base and a delta in one input."""
    size = PAIR.unpack_from(data.ljust(PAIR.size, b"\0"))[0]
    return data[PAIR.size : PAIR.size + size], data[PAIR.size + size :]


def fuzz(name: str, words: list[str]) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    # The finder of an editable install has loaders that atheris cannot instrument.
    sys.path.insert(0, str(ROOT / "src"))
    sys.meta_path.insert(0, PathFinder)
    with atheris.instrument_imports(include=["penstock"]):
        target = targets()[name]
    atheris.Setup([sys.argv[0], *words], target)
    with strict():
        atheris.Fuzz()


def main() -> int:
    """Fuzz all targets, one after the other, or one of them with arguments of libFuzzer."""
    if len(sys.argv) > 1:
        fuzz(sys.argv[1], sys.argv[2:])
    # `_fuzzed` runs each target in a process of its own, because libFuzzer ends the process.
    failed = [name for name, inputs in seeds().items() if not _fuzzed(name, inputs, SECONDS // len(seeds()))]
    print(f"failed: {', '.join(failed)}; the inputs stand in {FOLDER}" if failed else "nothing was found")
    return int(bool(failed))


def _fuzzed(name: str, inputs: list[bytes], seconds: int) -> bool:
    """Fuzz one target in a process of its own; whether it found nothing, and was guided by coverage."""
    corpus = FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(inputs):
        (corpus / f"seed-{number}").write_bytes(data)
    limits = (f"-max_total_time={seconds}", f"-max_len={2 * LIMIT}", "-rss_limit_mb=2048", "-timeout=10")
    words = (str(corpus), *limits, f"-artifact_prefix={FOLDER}/{name}-", "-verbosity=0", "-print_final_stats=1")
    print(f"fuzzing {name} for {seconds} s", flush=True)
    command = (sys.executable, "-m", "tests.serving.server.fuzz_frames", name, *words)
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        return False
    # Inputs that reach something new are kept. What is native shows nothing of its branches.
    return name in NATIVE or len(list(corpus.iterdir())) > len(inputs)


if __name__ == "__main__":
    raise SystemExit(main())
