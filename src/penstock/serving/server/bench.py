"""``penstock bench-serve``: clients that tick as fast as they are answered, and how long their ticks take.

Each client is a Gamecore session on a connection of its own, over HTTP or TCP. All run in this process, which takes a
core of its own: on a machine with two cores the server has the other one.
"""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from time import perf_counter
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import numpy as np
import orjson
import uvloop

from penstock.errors import ConfigError, ResourceError
from penstock.types import Array

__all__ = ["Load", "Measured", "measure"]

_REQUEST = Struct("!6q")
_REPLY = Struct("!3q")
_OBSERVATIONS = 16
"""Different observations that a client sends in turn."""
_DTYPES = {"FP32": "float32", "FP64": "float64", "FP16": "float16", "BOOL": "bool"}


class Load(NamedTuple):
    """What is sent."""

    url: str
    """``http://host:port`` of the server."""
    policy: str
    clients: int
    seconds: float
    tcp_port: int | None
    """Ticks go over TCP to this port; ``None``: over HTTP."""
    codec: str
    token: str


class Measured(NamedTuple):
    """What came back. Latencies in seconds, from sending a tick to its whole reply."""

    ticks: int
    seconds: float
    failures: int
    latency: Array
    """``[ticks]``: of those that were answered."""
    reason: str
    """Of the first failure; empty if there is none."""

    @property
    def rate(self) -> float:
        """Ticks a second."""
        return self.ticks / self.seconds

    def percentile(self, share: float) -> float:
        """The latency that so many percent of the ticks did not exceed."""
        return float(np.percentile(self.latency, share)) if self.ticks else float("nan")

    def line(self) -> str:
        """The figures in one line."""
        p50, p99 = (f"{1000 * self.percentile(share):.3f} ms" for share in (50, 99))
        return f"{self.rate:,.0f} ticks/s, p50 {p50}, p99 {p99}, {self.failures} failures"


def measure(load: Load) -> Measured:
    """Let clients tick for a while.

    Raises:
        ConfigError: the URL is none, or the server has no such policy.
        ResourceError: the server cannot be reached, or answers no tick.
    """
    split = urlsplit(load.url)
    if split.scheme != "http" or split.hostname is None or split.port is None:
        raise ConfigError(f"{load.url} is no URL of a server; write http://HOST:PORT")
    bodies = _bodies(_metadata(load), load.codec)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(_measure(load, split.hostname, split.port, bodies))
    if not found.ticks:
        raise ResourceError(f"{load.url} has answered no tick: {found.reason or 'give --seconds more'}")
    return found


async def _measure(load: Load, host: str, port: int, bodies: list[bytes]) -> Measured:
    loop = asyncio.get_running_loop()
    until = loop.create_future()
    clients: list[_Client] = []
    names: list[bytes] = []
    try:
        for number in range(load.clients):
            name = f"bench-{number}-{perf_counter()}".encode()
            names.append(name)
            frame = _tcp_frame if load.tcp_port is not None else _http_frame
            start, stop = (frame(name, kind, b"", load) for kind in (b"start", b"stop"))
            ticks = [frame(name, b"tick", body, load) for body in bodies]
            read = _tcp_reply if load.tcp_port is not None else _http_reply
            client = _Client(start, ticks, stop, read)
            await loop.create_connection(lambda one=client: one, host, load.tcp_port or port)  # type: ignore[misc]
            clients.append(client)
    except OSError as error:
        raise ResourceError(f"cannot connect to {host}:{load.tcp_port or port}: {error.strerror or error}") from None
    began = perf_counter()
    for client in clients:
        client.begin()
    loop.call_later(load.seconds, until.set_result, None)
    await until
    for client in clients:
        client.ends = True
    seconds = perf_counter() - began
    latency = np.array([value for client in clients for value in client.latency])
    await asyncio.wait([asyncio.ensure_future(client.gone.wait()) for client in clients], timeout=5.0)
    failed = [client for client in clients if client.failures]
    # A connection that the server has closed could not stop its session.
    lost = [name for name, client in zip(names, clients, strict=True) if not client.has_stopped]
    await asyncio.to_thread(_stop, load, lost)
    failures = sum(client.failures for client in failed)
    return Measured(len(latency), seconds, failures, latency, failed[0].reason if failed else "")


class _Client(asyncio.Protocol):
    """One session on one connection: start, tick after tick, stop."""

    transport: asyncio.Transport

    def __init__(
        self, start: bytes, ticks: list[bytes], stop: bytes, read: Callable[[bytes], tuple[int, str] | None]
    ) -> None:
        self.latency: list[float] = []
        self.failures = 0
        self.reason = ""
        self.ends = False
        self.has_stopped = False
        self.gone = asyncio.Event()
        self._start = start
        self._ticks = ticks
        self._stop = stop
        self._read = read
        self._buffer = b""
        self._number = -1
        self._sent = 0.0
        self._stops = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def begin(self) -> None:
        self.transport.write(self._start)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        if not self.has_stopped:
            self._failed("the server closed the connection; its log says why")
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        found = self._read(self._buffer)
        if found is None or len(self._buffer) < found[0]:
            return
        now = perf_counter()
        self._buffer = b""
        if found[1]:
            self._failed(found[1])
        if self._stops:
            self.has_stopped = True
            self.transport.close()
            return
        if self._number >= 0 and not found[1]:
            self.latency.append(now - self._sent)
        self._number += 1
        if self.ends:
            self._stops = True
            self.transport.write(self._stop)
            return
        self._sent = now
        self.transport.write(self._ticks[self._number % len(self._ticks)])

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.reason = self.reason or why


def _stop(load: Load, names: Sequence[bytes]) -> None:
    """Stop sessions over HTTP. The server ends those that this does not reach once they are idle."""
    for name in names:
        headers = {"session": name.decode(), "step-kind": "stop", "token": load.token}
        request = urllib.request.Request(f"{load.url.rstrip('/')}/step", b"", headers)
        try:
            urllib.request.urlopen(request, timeout=1.0).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            return


def _tcp_frame(session: bytes, kind: bytes, body: bytes, load: Load) -> bytes:
    token = load.token.encode()
    key = f"policy={load.policy}".encode() if kind == b"start" else b""
    head = _REQUEST.pack(len(session), len(kind), len(key), len(token), len(body), 1)
    return b"".join((head, session, kind, key, token, body))


def _http_frame(session: bytes, kind: bytes, body: bytes, load: Load) -> bytes:
    named = (b"policy: " + load.policy.encode(),) if kind == b"start" else ()
    lines = (
        b"POST /step HTTP/1.1",
        b"host: bench",
        b"session: " + session,
        b"step_kind: " + kind,
        b"token: " + load.token.encode(),
        *named,
        b"content-length: " + str(len(body)).encode(),
        b"",
        body,
    )
    return b"\r\n".join(lines)


def _tcp_reply(buffer: bytes) -> tuple[int, str] | None:
    """Bytes of the reply that begins here, and why it is no answer; ``None``: it is not whole."""
    if len(buffer) < _REPLY.size:
        return None
    session, body, _ = _REPLY.unpack_from(buffer)
    return _REPLY.size + session + body, ""


def _http_reply(buffer: bytes) -> tuple[int, str] | None:
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    place = buffer.index(b"content-length: ") + len(b"content-length: ")
    size = end + 4 + int(buffer[place : buffer.index(b"\r", place)])
    if len(buffer) < size:
        return None
    status = buffer.split(b" ", 2)[1].decode()
    return size, "" if status == "200" else f"{status}: {orjson.loads(buffer[end + 4 : size])['detail']}"


def _metadata(load: Load) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{load.url.rstrip('/')}/v2/models/{load.policy}", headers={"authorization": f"Bearer {load.token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10.0) as reply:
            found: dict[str, Any] = orjson.loads(reply.read())
            return found
    except urllib.error.HTTPError as error:
        text = orjson.loads(error.read()).get("error", error.reason)
        raise ConfigError(f"{load.url}: {text}") from None
    except (urllib.error.URLError, OSError) as error:
        raise ResourceError(f"cannot reach {load.url}: {getattr(error, 'reason', error)}") from None


def _bodies(metadata: Mapping[str, Any], codec: str) -> list[bytes]:
    """Bodies of ticks with numbers between 0 and 1, choices in their ranges, and masks that allow everything."""
    ranges = metadata.get("parameters", {}).get("ranges", {})
    generator = np.random.default_rng(0)
    bodies = []
    for _ in range(_OBSERVATIONS):
        fields: dict[str, Array] = {}
        for tensor in metadata["inputs"]:
            least, largest = ranges.get(tensor["name"], (0, 1))
            shape = tensor["shape"][1:]
            is_choice = tensor["name"] in ranges
            values = generator.integers(least, largest + 1, shape) if is_choice else generator.random(shape)
            dtype = _DTYPES.get(tensor["datatype"], tensor["datatype"].lower())
            fields[tensor["name"]] = (
                np.ones_like(values) if tensor["name"] == "action_mask" else np.asarray(values, dtype)
            )
        if codec == "raw":
            bodies.append(b"".join(values.astype("<f4").tobytes() for values in fields.values()))
            continue
        mask = fields.pop("action_mask", None)
        obs = fields["obs"].tolist() if "obs" in fields else _nested(fields)
        body = {"obs": obs} if mask is None else {"obs": obs, "action_mask": mask.tolist()}
        bodies.append(orjson.dumps(body))
    return bodies


def _nested(fields: Mapping[str, Array]) -> dict[str, Any]:
    return {name.removeprefix("obs."): values.tolist() for name, values in fields.items()}
