"""``penstock bench-serve``: clients that tick as fast as they are answered, and how long their ticks take.

Each client is a Gamecore session on a connection of its own, over HTTP or TCP.
"""

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from struct import Struct
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import numpy as np
import orjson

from penstock.errors import ConfigError, ResourceError
from penstock.serving.bench.load import Conversation, Measured, converse
from penstock.types import Array

__all__ = ["Load", "http_reply", "measure"]

_REQUEST = Struct("!6q")
_REPLY = Struct("!3q")
_OBSERVATIONS = 16
"""Different observations that a client sends in turn."""
_PATIENCE_S = 10.0
"""Longest time for a reply before and after the load."""
_DTYPES = {"FP32": "float32", "FP64": "float64", "FP16": "float16", "BOOL": "bool"}


class Load(NamedTuple):
    """What is sent."""

    url: str
    """``http://host:port`` of the server, or ``https://host:port``."""
    policy: str
    clients: int
    seconds: float
    tcp_port: int | None
    """Ticks go over TCP to this port; ``None``: over HTTP."""
    codec: str
    token: str
    tls: ssl.SSLContext | None = None
    """How to verify the server; ``None`` without TLS."""


def measure(load: Load) -> Measured:
    """Let clients tick for a while.

    Raises:
        ConfigError: the URL is not one of a server, or the server refuses the policy's name or the token.
        ResourceError: the server cannot be reached, or answers no tick.
    """
    split = urlsplit(load.url)
    if split.scheme not in {"http", "https"} or split.hostname is None or split.port is None:
        raise ConfigError(f"{load.url} is no URL of a server; write http://HOST:PORT")
    bodies = _bodies(_metadata(load), load.codec)
    names = [f"bench-{number}-{perf_counter()}".encode() for number in range(load.clients)]
    conversations = [_conversation(name, bodies, load) for name in names]
    found = converse(split.hostname, load.tcp_port or split.port, conversations, load.seconds, load.tls)
    # A connection that the server has closed could not stop its session.
    _stop(load, [names[place] for place in found.unfinished])
    if not found.ticks:
        raise ResourceError(f"{load.url} has answered no tick: {found.reason or 'give --seconds more'}")
    return found


def _conversation(name: bytes, bodies: Sequence[bytes], load: Load) -> Conversation:
    """A session: start, tick after tick, stop."""
    frame = _tcp_frame if load.tcp_port is not None else _http_frame
    start, stop = (frame(name, kind, b"", load) for kind in (b"start", b"stop"))
    ticks = [frame(name, b"tick", body, load) for body in bodies]
    return Conversation(start, ticks, stop, _tcp_reply if load.tcp_port is not None else http_reply)


def _stop(load: Load, names: Sequence[bytes]) -> None:
    """Stop sessions over HTTP. The server ends those that this does not reach once they are idle."""
    for name in names:
        headers = {"session": name.decode(), "step-kind": "stop", "token": load.token}
        request = urllib.request.Request(f"{load.url.rstrip('/')}/step", b"", headers)
        try:
            urllib.request.urlopen(request, timeout=_PATIENCE_S, context=load.tls).close()
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


def http_reply(buffer: bytes) -> tuple[int, str] | None:
    """A reply over HTTP with its length in its head, see `Conversation.read`."""
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
        f"{load.url.rstrip('/')}/v2/models/{quote(load.policy, safe='')}",
        headers={"authorization": f"Bearer {load.token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S, context=load.tls) as reply:
            found = _object(reply.read(), load)
    except urllib.error.HTTPError as error:
        text = _object(error.read(), load).get("error", error.reason)
        raise ConfigError(f"{load.url}: {text}") from None
    except (urllib.error.URLError, OSError) as error:
        raise ResourceError(f"cannot reach {load.url}: {getattr(error, 'reason', error)}") from None
    except http.client.HTTPException:
        raise _no_server(load) from None
    if "inputs" not in found:
        raise _no_server(load)
    return found


def _object(body: bytes, load: Load) -> dict[str, Any]:
    """The JSON object in a reply.

    Raises:
        ResourceError: there is none.
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise _no_server(load)
    return found


def _no_server(load: Load) -> ResourceError:
    return ResourceError(f"{load.url} is no penstock server; give the address that penstock serve has printed")


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
