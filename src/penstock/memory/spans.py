"""A ring of the latest spans of time, in a file that is mapped into memory. One process writes it at a time.

The spans outlive their writer, however it ends. They can be read while the ring is written. Looks at no clock.
"""

import contextlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.errors import ResourceError
from penstock.memory.segment import Segment, reserve
from penstock.types import Array

__all__ = ["CAPACITY", "RecordedSpans", "SpanRing", "read_spans"]

CAPACITY = 65_536
"""Spans that a ring keeps. With 24 bytes each, they take 1.5 MB a process, however long the run."""

_MAGIC = b"spans v1"
_HEAD = struct.Struct("<8sqqq")
"""Magic, capacity, number of spans ever added, number of names."""
_COUNT = struct.Struct("<q")
_ADDED_AT, _NAMES_AT, _TABLE_AT = 16, 24, 64
_NAMES, _NAME_BYTES = 256, 64
_OTHER = _NAMES - 1
_SPANS_AT = _TABLE_AT + _NAMES * _NAME_BYTES
_SPAN = struct.Struct("<qqii")
_ROW = np.dtype([("begin", "<i8"), ("end", "<i8"), ("node", "<i4"), ("name", "<i4")])


class SpanRing:
    """The writer's end of a ring. The successor of a dead writer continues where the dead one stopped."""

    def __init__(self, segment: Segment) -> None:
        """Attach to a whole segment. A segment of zeros becomes an empty ring.

        Raises:
            ResourceError: the segment holds something else.
        """
        self._segment = segment
        self._memory = segment.bytes.data
        self._capacity = (segment.nbytes - _SPANS_AT) // _SPAN.size
        magic, capacity, self._added, names = _HEAD.unpack_from(self._memory)
        if magic == bytes(len(_MAGIC)):
            _HEAD.pack_into(self._memory, 0, _MAGIC, self._capacity, 0, 0)
        elif magic != _MAGIC or capacity != self._capacity:
            raise ResourceError(f"this segment of {segment.nbytes} bytes holds no ring of {self._capacity} spans")
        self._names = {text: number for number, text in enumerate(_read_names(self._memory, names))}

    @classmethod
    def at(cls, path: Path, capacity: int = CAPACITY) -> "SpanRing":
        """The ring in the file ``path``. Makes the file if there is none.

        Raises:
            ResourceError: the file cannot be made, or holds something else.
        """
        nbytes = _SPANS_AT + capacity * _SPAN.size
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR)
            if os.fstat(descriptor).st_size == 0:
                # An earlier life made the file, and died before it had given it a size.
                _give_size(descriptor, nbytes)
        except FileNotFoundError:
            return cls(Segment.create(nbytes, path.name, path))
        except OSError as error:
            raise ResourceError(f"cannot open {path}: {error.strerror}") from error
        return cls(Segment.attach(descriptor, nbytes))

    def name(self, text: str) -> int:
        """The number of a name. Once all numbers are taken, further names share the last one, ``other``."""
        number = self._names.get(text)
        if number is None:
            number = min(len(self._names), _OTHER)
            kept = text if number < _OTHER else "other"
            if kept not in self._names:
                # Padded, because a dead writer may have left a longer name there that it had not counted.
                encoded = kept.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
                begin = _TABLE_AT + number * _NAME_BYTES
                self._memory[begin : begin + _NAME_BYTES] = encoded
                self._names[kept] = number
                _COUNT.pack_into(self._memory, _NAMES_AT, len(self._names))
        return number

    def add(self, begin_ns: int, end_ns: int, node: int, name: int) -> None:
        """Add one span. It overwrites the oldest one of a full ring.

        Args:
            begin_ns: when it began, by a clock that all processes share.
            end_ns: when it ended.
            node: number of the node's name.
            name: number of the span's name.
        """
        at = _SPANS_AT + self._added % self._capacity * _SPAN.size
        _SPAN.pack_into(self._memory, at, begin_ns, end_ns, node, name)
        self._added += 1
        # Count the span after it is written. A death between the two then leaves no half-written span.
        _COUNT.pack_into(self._memory, _ADDED_AT, self._added)

    def close(self) -> None:
        """Unmap the file. It stays on the disk."""
        self._memory.release()
        self._segment.close()


class RecordedSpans(NamedTuple):
    """The content of a ring."""

    names: tuple[str, ...]
    spans: Array
    """``[n]``, the oldest first, with fields ``begin``, ``end`` (nanoseconds), ``node`` and ``name`` (both index
    ``names``)."""
    overwritten: int
    """Number of older spans that were overwritten."""


def read_spans(path: Path) -> RecordedSpans | None:
    """The spans in a ring's file, which may be written meanwhile. ``None`` if the file holds no ring."""
    try:
        content = path.read_bytes()
        with path.open("rb") as file:
            later = file.read(_HEAD.size)
    except OSError:
        return None
    if len(content) < _SPANS_AT or content[: len(_MAGIC)] != _MAGIC:
        return None
    _, capacity, added, names = _HEAD.unpack_from(content)
    if len(content) < _SPANS_AT + capacity * _SPAN.size or capacity < 1:
        return None
    # Race: the writer may add spans while the file is read.
    # 1. They overwrite the oldest ones: the later count says how many.
    # 2. One more span may be half written: it is left out, too.
    first = max(0, _HEAD.unpack(later)[2] - capacity + 1)
    table = tuple(_read_names(memoryview(content), names))
    rows = np.frombuffer(content, _ROW, capacity, _SPANS_AT)[np.arange(first, max(first, added)) % capacity]
    known = (rows["node"] < len(table)) & (rows["name"] < len(table)) & (rows["end"] >= rows["begin"])
    return RecordedSpans(table, rows[known], first)


def _give_size(descriptor: int, nbytes: int) -> None:
    """Give an empty file its size, with space on the disk. If that fails, the file stays empty and is closed.

    Raises:
        OSError: the disk has no space for it.
    """
    try:
        os.ftruncate(descriptor, nbytes)
        reserve(descriptor, nbytes)
    except OSError:
        # The next life would map a file with holes. A process that writes into a hole of a full disk is killed.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)
        raise


def _read_names(memory: memoryview, count: int) -> list[str]:
    places = range(_TABLE_AT, _TABLE_AT + min(count, _NAMES) * _NAME_BYTES, _NAME_BYTES)
    return [bytes(memory[at : at + _NAME_BYTES]).rstrip(b"\0").decode(errors="replace") for at in places]
