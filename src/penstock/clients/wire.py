"""Gamecore as bytes, for both clients: requests are made, replies are read. Opens no socket."""

import json
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from penstock.errors import ConfigError, PenstockError

__all__ = [
    "NO_SECOND_VERSION",
    "Address",
    "BaseMissingError",
    "EpisodeLostError",
    "HttpWire",
    "RefusedError",
    "TcpWire",
    "Wire",
    "bracketed",
    "checked_version",
    "closed",
    "decoded",
    "encoded",
    "first_wire",
    "key_of",
]

NO_SECOND_VERSION = "the server has closed the connection; it may speak version 1 only"
_REQUEST = Struct("!6q")
_REPLY = Struct("!3q")
_MAX_REPLY = 1 << 30
_MAX_HEAD = 64 << 10


class EpisodeLostError(PenstockError):
    """The connection broke, and nobody knows whether the last request was taken. Begin a new episode with `start`."""


class RefusedError(PenstockError):
    """The server refused a request.

    Attributes:
        status: what kind of refusal it is, in the numbers of HTTP.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    @property
    def may_retry(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in {429, 503}

    @property
    def has_begun(self) -> bool:
        """Whether a start was refused because its session has an episode already."""
        return self.status == 409

    @property
    def has_ended(self) -> bool:
        """Whether a stop was refused because the server has no such session any more."""
        return self.status == 404


class BaseMissingError(RefusedError):
    """The server lacks the base of a delta. The request was not taken; the wire sends it as a key frame next time."""


class Address(NamedTuple):
    """Where a server listens."""

    scheme: str
    """``http`` or ``tcp``."""
    host: str
    port: int
    is_secure: bool
    """Whether the connection is one of TLS."""

    @classmethod
    def read(cls, url: str) -> "Address":
        """The address in ``tcp://localhost:8001`` or ``http://localhost:8000``; with TLS, ``tcps://`` or ``https://``.

        Raises:
            ConfigError: ``url`` is no such address.
        """
        try:
            found = urlsplit(url)
            given, host, port = str(found.scheme), found.hostname, found.port
        except (ValueError, AttributeError):
            given, host, port = "", None, None
        scheme = given.removesuffix("s")
        if scheme not in {"http", "tcp"} or not host or port is None:
            raise ConfigError(f"{url!r} is no address of a server; write tcp://localhost:8001 or http://localhost:8000")
        return cls(scheme, host, port, is_secure=scheme != given)


class Wire(Protocol):
    """One connection's bytes. A request is answered before the next one is made."""

    hint: str
    """What a closed connection may mean."""

    def request(self, kind: str, session: str, body: bytes) -> bytes:
        """The bytes of a request."""
        ...

    def feed(self, data: bytes) -> bytes | None:
        """Take bytes that have arrived. The body of the reply once it is whole.

        Raises:
            RefusedError: the server refused the request.
            BaseMissingError: it did so because it lacks the base of a delta. Send the request again.
            EpisodeLostError: the bytes are no reply.
        """
        ...


class TcpWire:
    """Version 1 over TCP: sizes, then payloads."""

    hint = (
        "; version 1 over TCP closes it for a refusal, and the server's log says why; a server with TLS wants tcps://"
    )

    def __init__(self, token: str, policy: str) -> None:
        self._token = token.encode()
        self._key = key_of(policy)
        self._buffer = bytearray()
        self._time = 0

    def request(self, kind: str, session: str, body: bytes) -> bytes:
        """See `Wire`."""
        self._time += 1
        self._buffer.clear()
        name, step = session.encode(), kind.encode()
        key = self._key if kind == "start" else b""
        sizes = (len(name), len(step), len(key), len(self._token), len(body), self._time)
        return b"".join((_REQUEST.pack(*sizes), name, step, key, self._token, body))

    def feed(self, data: bytes) -> bytes | None:
        """See `Wire`."""
        self._buffer += data
        if len(self._buffer) < _REPLY.size:
            return None
        session, body, time = _REPLY.unpack_from(self._buffer)
        if not (0 <= session <= _MAX_HEAD and 0 <= body <= _MAX_REPLY and time == self._time):
            raise EpisodeLostError("the server's bytes are no reply of Gamecore")
        start = _REPLY.size + session
        if len(self._buffer) < start + body:
            return None
        return bytes(self._buffer[start : start + body])


class HttpWire:
    """``POST /step`` over HTTP/1.1 with one connection that is kept."""

    def __init__(self, address: Address, token: str, policy: str) -> None:
        self.hint = "" if address.is_secure else "; a server with TLS wants https://"
        named = {"token": token, "policy": policy}
        headers = "".join(f"{name}: {value}\r\n" for name, value in named.items() if value)
        self._head = f"POST /step HTTP/1.1\r\nhost: {bracketed(address.host)}:{address.port}\r\n{headers}"
        self._buffer = bytearray()

    def request(self, kind: str, session: str, body: bytes) -> bytes:
        """See `Wire`."""
        self._buffer.clear()
        more = f"session: {session}\r\nstep-kind: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        return (self._head + more).encode() + body

    def feed(self, data: bytes) -> bytes | None:
        """See `Wire`."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                raise EpisodeLostError("the server's bytes are no reply of HTTP")
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        parts, length = first.split(" ", 2), headers.get("content-length", "")
        if len(parts) < 2 or not parts[1].isdigit() or not length.isdigit() or int(length) > _MAX_REPLY:
            raise EpisodeLostError("the server's bytes are no reply of HTTP")
        if len(self._buffer) < end + 4 + int(length):
            return None
        body, status = bytes(self._buffer[end + 4 : end + 4 + int(length)]), int(parts[1])
        if status != 200:
            raise RefusedError(status, _detail(body))
        return body


def bracketed(host: str) -> str:
    """A host as it stands before a colon and a port: an address of IPv6 is in brackets."""
    return f"[{host}]" if ":" in host else host


def first_wire(address: Address, token: str, policy: str) -> Wire:
    """The wire for HTTP, or for version 1 over TCP."""
    return TcpWire(token, policy) if address.scheme == "tcp" else HttpWire(address, token, policy)


def key_of(policy: str) -> bytes:
    """The key that names a policy over TCP."""
    return f"policy={policy}".encode() if policy else b""


def checked_version(address: Address, version: int | None, *, delta: bool) -> int | None:
    """Check a version of Gamecore over TCP, and return it.

    Raises:
        ConfigError: nobody speaks it, or it has no deltas.
    """
    if delta and (address.scheme != "tcp" or version == 1):
        raise ConfigError("delta encoding needs version 2 over TCP; give a tcp:// address and leave version out")
    if version not in {None, 1, 2}:
        raise ConfigError(f"version is {version}; give 1 or 2, or leave it out: the server decides")
    return version


def closed(hint: str) -> EpisodeLostError:
    """The error for a connection that the server has closed."""
    return EpisodeLostError(f"the server has closed the connection{hint}")


def encoded(
    obs: Any,  # noqa: ANN401
    reward: float | None,
    terminated: bool | None,
    action_mask: Any,  # noqa: ANN401
    info: Mapping[str, float] | None = None,
) -> bytes:
    """The body of a tick or of the end, as JSON. What is ``None`` is left out."""
    given = {"obs": obs, "reward": reward, "terminated": terminated, "action_mask": action_mask, "info": info}
    left = {name: value for name, value in given.items() if value is not None}
    return _ENCODER.encode(left).encode() if left else b""


def decoded(body: bytes) -> Any:  # noqa: ANN401 - an action
    """The action in a reply."""
    try:
        return json.loads(body)["action"]
    except (ValueError, KeyError, TypeError):
        raise EpisodeLostError("the reply holds no action; for another encoding use `send`") from None


def _plain(value: Any) -> Any:  # noqa: ANN401 - an array or number of NumPy, which need not be installed
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")


# Made once: `json.dumps` makes one at each call that names a ``default``.
_ENCODER = json.JSONEncoder(default=_plain)


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace") or "refused without a reason"
