"""Heads that a client of HTTP repeats. Parses nothing: what is kept here was parsed once."""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Head", "RepeatedHeads"]

_END = b"\r\n\r\n"
_KEPT = 16
"""Heads of one connection: those of a session differ in the length of the body only."""
_LONGEST = 1024
"""Bytes of a head that is kept."""


class Head(NamedTuple):
    """What a request says before its body. Names of headers are in small letters, with ``-`` for ``_``."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[bytes, bytes]
    what: str
    """The request in a few words."""


class RepeatedHeads:
    """The heads of one connection, by their bytes.

    Requests with the same head differ only in their bodies. A request with a known head needs no parsing if these
    three things are true:

    - The request before it was whole.
    - Its bytes arrive at once, with nothing after them.
    - Its body has the size that the head gives.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[Head, int]] = {}

    def divided(self, data: bytes) -> tuple[Head, bytes] | None:
        """The head and the body of a request; ``None``: this is not one whole request with a head that is kept."""
        start = data.find(_END, 0, _LONGEST) + len(_END)
        found = self._kept.get(data[:start])
        if found is None or len(data) != start + found[1]:
            return None
        return found[0], data[start:]

    def keep(self, data: bytes, head: Head, size: int) -> None:
        """Keep the head of a request that was parsed, if these bytes are that request and nothing else.

        Args:
            data: began behind a whole request.
            head: of the last request in them. The connection goes on after it.
            size: bytes of its body. A chunked body takes more bytes than it has, so its head is not kept.
        """
        start = data.find(_END, 0, _LONGEST) + len(_END)
        if start < len(_END) or len(data) != start + size or b"expect" in head.headers:
            return
        if len(self._kept) == _KEPT:
            self._kept.clear()
        self._kept[data[:start]] = head, size
