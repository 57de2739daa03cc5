"""HTTP/1.1 over asyncio, parsed by llhttp (``httptools``). Knows no paths: a route takes each whole request.

There is no task and no scope between a request and the batch that answers it. On a busy machine a GET took 15 to 18 us
of processor time here, and a small POST 30 to 39 us with an empty application in uvicorn over the same parser and loop.
"""

import logging
import zlib
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from time import perf_counter

import httptools
import orjson

from penstock.serving.server.admission.refusal import FAILED, Refusal
from penstock.serving.server.connections.connection import Connection, Reply
from penstock.serving.server.connections.heads import Head, RepeatedHeads
from penstock.serving.server.connections.service import Service

__all__ = ["JSON", "HttpConnection", "HttpReply", "HttpRequest", "Route"]

log = logging.getLogger("penstock.serve")

JSON = "application/json"
_MAX_HEAD = 32 << 10
"""Bytes of a request line and its headers."""
_BESIDE = 4
"""Bytes of a header beside its name and value."""
_PACKED = frozenset({b"gzip", b"deflate"})
_EITHER = zlib.MAX_WBITS | 32
"""Tells zlib to find out which of the two a body is."""
_OK = HTTPStatus.OK
"""Looked up once: in Python 3.11 that takes a call."""
_HEADS = 1024
"""Heads of replies that are kept: they differ in the length of the body."""


class HttpRequest:
    """A request. Its attributes are those of its `Head`, and its body."""

    __slots__ = ("body", "headers", "method", "path")

    def __init__(self, head: Head, body: bytes) -> None:
        self.method, self.path, self.headers, _ = head
        self.body = body

    def header(self, name: bytes) -> str:
        """The value of a header; empty if it is not there."""
        return self.headers.get(name, b"").decode("latin-1")


class HttpReply(Reply):
    """The reply to one request.

    Attributes:
        protocol: for metrics and the access log. The route sets it.
        error_keys: the keys of the error's text in the JSON of an error. At first these are the keys of all protocols.
            The route sets those of its own protocol.
        is_head_only: the request is a ``HEAD``. The reply gives the length of a body, but leaves the body out.
    """

    __slots__ = ("error_keys", "is_head_only", "protocol", "what")

    def __init__(self, connection: "HttpConnection", since: float, what: str, *, is_last: bool) -> None:
        super().__init__(connection, since)
        self.closes = is_last
        self.protocol = "http"
        self.error_keys: tuple[str, ...] = ("error", "detail")
        self.is_head_only = False
        self.what = what

    def send(self, status: int, content_type: str, body: bytes, more: str = "") -> None:
        """Answer. ``more`` holds further header lines, each with its line end."""
        service = self.connection.service
        closes = self.closes or service.is_ending
        service.note(
            protocol=self.protocol,
            peer=self.connection.peer,
            what=self.what,
            status=status,
            since=self.since,
            size=len(body),
        )
        end = "connection: close\r\n" if closes else ""
        head = _head(status, content_type, len(body), more, end)
        self.put(head if self.is_head_only else head + body, closes=closes)

    def answer(self, content_type: str, body: bytes) -> None:
        """Answer with this body."""
        self.send(_OK, content_type, body)

    def send_json(self, value: object, status: int = HTTPStatus.OK) -> None:
        """Answer with JSON."""
        self.send(status, JSON, orjson.dumps(value))

    def refused(self, refusal: Refusal) -> None:
        """Answer that there is no answer."""
        more = "" if refusal.retry_after is None else f"retry-after: {refusal.retry_after}\r\n"
        if refusal.status == HTTPStatus.UNAUTHORIZED:
            more += "www-authenticate: Bearer\r\n"
        self.send(refusal.status, JSON, orjson.dumps(dict.fromkeys(self.error_keys, refusal.text)), more)


@lru_cache(_HEADS)
def _head(status: int, content_type: str, size: int, more: str, end: str) -> bytes:
    """What stands before the body of a reply."""
    line = f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}"
    return f"{line}\r\ncontent-type: {content_type}\r\ncontent-length: {size}\r\n{more}{end}\r\n".encode()


def _path(target: bytes) -> bytes:
    """The path in a request's target. Proxies send whole URLs, which a server must take (RFC 9112, 3.2.2)."""
    if not target.startswith(b"/"):
        _, _, rest = target.partition(b"://")
        slash = rest.find(b"/")
        target = rest[slash:] if slash >= 0 else b"/"
    return target.partition(b"?")[0]


Route = Callable[[HttpRequest, HttpReply], None]
"""Takes a whole request and answers it, now or later. May raise `Refusal`."""


class HttpConnection(Connection):
    """One client over HTTP."""

    def __init__(self, service: Service, route: Route) -> None:
        super().__init__(service)
        self._route = route
        self._parser = httptools.HttpRequestParser(self)
        self._head = 0
        """Bytes of the present request's head so far, as they came."""
        self._head_taken = 0
        """Of these, the bytes of what the parser has found."""
        self._has_head = False
        self._size = 0
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: bytes | bytearray = b""
        self._repeated = RepeatedHeads()
        self._parsed: Head | None = None
        """See `_parse`."""

    def received(self, data: bytes) -> None:
        """Parse what is not known yet. Whole requests are routed on the way."""
        is_between = self.partial_since is None
        if is_between and (found := self._repeated.divided(data)) is not None:
            head, body = found
            self._take(head, body, is_last=False)
            return
        last = self._parse(data)
        if is_between and last is not None:
            self._repeated.keep(data, last, self._size)

    def _parse(self, data: bytes) -> Head | None:
        """The head of the last request that these bytes have completed, if the connection goes on after it."""
        self._parsed = None
        self._head += len(data)
        if self.partial_since is None:
            self.partial_since = self.service.loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request was answered as if it had not asked for that, and is the last one.
            self.is_deaf = True
        except httptools.HttpParserCallbackError:
            log.exception("a request of %s failed", self.peer)
            self.drop("the server failed to read a request")
        except httptools.HttpParserError as error:
            self._refuse(Refusal(HTTPStatus.BAD_REQUEST, f"the request is no HTTP: {error}"))
        self._check_head(self._head)
        return self._parsed

    # What the parser calls.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._headers = {}
        self._body = b""
        self._size = 0
        self._head_taken = 0
        self._has_head = False
        self.partial_since = self.service.loop.time()

    def on_url(self, url: bytes) -> None:
        """A part of the URL."""
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. In names ``_`` counts as ``-``, because proxies drop names with ``_``. Trailers are ignored."""
        self._count(len(name) + len(value) + _BESIDE)
        if not self._has_head:
            self._headers[name.lower().replace(b"_", b"-")] = value.rstrip(b" \t")

    def on_headers_complete(self) -> None:
        """Check the size before the body is read."""
        self._head = 0
        self._has_head = True
        length = self._headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.service.limits.max_body:
            self._refuse_size()
        elif self._headers.get(b"expect", b"").lower() == b"100-continue" and not self.is_deaf:
            reply = Reply(self, 0.0)
            self.expect(reply)
            reply.put(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        # It belongs to no head.
        self._head = 0
        self._size += len(body)
        if self._size > self.service.limits.max_body:
            self._refuse_size()
        elif not self.is_deaf:
            self._body = self._joined(body) if self._body else body

    def _joined(self, part: bytes) -> bytearray:
        """The body so far, with one more part: an object for each of a million small ones would take much memory."""
        whole = self._body if isinstance(self._body, bytearray) else bytearray(self._body)
        whole += part
        return whole

    def on_message_complete(self) -> None:
        """A request is here."""
        self._head = 0
        self.partial_since = None
        if self.is_deaf:
            return
        method = self._parser.get_method().decode("latin-1")
        path = _path(self._url).decode("latin-1")
        head = Head(method, path, self._headers, f"{method} {path}")
        is_last = self._parser.should_upgrade() or not self._parser.should_keep_alive()
        self._parsed = None if is_last else head
        body, self._body = self._body, b""
        self._take(head, bytes(body), is_last=is_last)

    def _take(self, head: Head, body: bytes, *, is_last: bool) -> None:
        """Let the route answer a whole request."""
        reply = HttpReply(self, perf_counter(), head.what, is_last=is_last)
        reply.is_head_only = head.method == "HEAD"
        self.expect(reply)
        try:
            encoding = head.headers.get(b"content-encoding")
            self._route(HttpRequest(head, body if encoding is None else self._unpacked(encoding, body)), reply)
        except Refusal as refusal:
            reply.refused(refusal)
        except Exception:  # the client must not wait for a reply that never comes
            log.exception("a request of %s failed", self.peer)
            reply.refused(FAILED)

    def _unpacked(self, encoding: bytes, body: bytes) -> bytes:
        """The body without its packing, which is the value of ``content-encoding``.

        Raises:
            Refusal: it is packed in another way than its header says (400) or than is known here (415), or it is too
                large once it is unpacked (413).
        """
        encoding = encoding.lower()
        if encoding == b"identity":
            return body
        if encoding not in _PACKED:
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-encoding is none of identity, gzip and deflate")
        unpacking, limit = zlib.decompressobj(_EITHER), self.service.limits.max_body
        try:
            unpacked = unpacking.decompress(body, limit + 1)
        except zlib.error:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body is not packed as its content-encoding says") from None
        if len(unpacked) > limit:
            raise self._too_large()
        if not unpacking.eof or unpacking.unused_data:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the packed body is not whole, or bytes follow it")
        return unpacked

    def _count(self, size: int) -> None:
        """So many more bytes belong to the head."""
        self._head_taken += size
        self._check_head(self._head_taken)

    def _check_head(self, size: int) -> None:
        if size > _MAX_HEAD:
            text = f"the head of the request has more than {_MAX_HEAD} bytes"
            self._refuse(Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text))

    def _refuse_size(self) -> None:
        self._refuse(self._too_large())

    def _too_large(self) -> Refusal:
        text = f"the body has more than {self.service.limits.max_body} bytes (--max_body)"
        return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what is no whole request, then close."""
        if self.is_deaf:
            return
        self._body = b""
        reply = HttpReply(self, perf_counter(), "no whole request", is_last=True)
        self.expect(reply)
        self.is_deaf = True
        self.partial_since = None
        reply.refused(refusal)
