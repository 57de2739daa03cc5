"""Repeated numbers of a message of protobuf. They stay bytes until the caller knows how many there must be."""

from collections.abc import Iterator, Mapping
from itertools import islice
from struct import Struct

import numpy as np

from penstock.types import Array

__all__ = ["FLOATS", "WHOLE", "Numbers", "varint", "whole"]

FLOATS: Mapping[str, Struct] = {"float": Struct("<f"), "double": Struct("<d")}
"""Types whose numbers have a fixed width."""
WHOLE: Mapping[str, type[np.generic]] = {
    "bool": np.bool_,
    "int32": np.int32,
    "int64": np.int64,
    "uint32": np.uint32,
    "uint64": np.uint64,
}
"""Types whose numbers are varints: seven bits a byte, lowest first. The eighth bit says that another byte follows."""
_MORE = 0x80
_LONGEST = 10
"""Bytes of a varint of 64 bits."""
_SIGN, _WORD = 1 << 31, (1 << 64) - 1
_CHUNK = 1 << 14
"""Bytes of varints that are read in one go. Memory beside the result is needed for these only."""


class Numbers:
    """The numbers of one field.

    Args:
        kind: their type: one of `FLOATS` or `WHOLE`.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._parts: list[memoryview] = []

    def add(self, part: memoryview) -> None:
        """Add the bytes of any number of numbers."""
        self._parts.append(part)

    def few(self, most: int) -> list[int] | None:
        """Whole numbers as a list; ``None`` if there are more than ``most``, or if the bytes hold no such numbers."""
        try:
            found = list(islice(self._each(), most + 1))
        except (IndexError, ValueError):
            return None
        return found if len(found) <= most else None

    def array(self, count: int) -> Array | None:
        """The numbers as ``[count]``; ``None`` if their count is another, or if the bytes hold no such numbers."""
        data = self._data()
        if self._kind in FLOATS:
            width = FLOATS[self._kind].size
            return data.view(f"<f{width}") if len(data) == width * count else None
        # A varint has at least one byte. So no memory is taken for numbers that have not been sent.
        return _varints(data, np.empty(count, WHOLE[self._kind])) if count <= len(data) else None

    def _each(self) -> Iterator[int]:
        for part in self._parts:
            at = 0
            while at < len(part):
                number, at = varint(part, at)
                yield whole(self._kind, number)

    def _data(self) -> Array:
        return np.frombuffer(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts), np.uint8)


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The varint that begins at ``at``, and where it ends. It may have more than 64 bits.

    Raises:
        IndexError: it is cut off.
        ValueError: it is too long.
    """
    byte = data[at]
    if byte < _MORE:  # the usual case
        return byte, at + 1
    number = 0
    for place in range(_LONGEST):
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < _MORE:
            return number, at + place + 1
    raise ValueError("the number is too long")


def whole(kind: str, number: int) -> bool | int:
    """The number of a type of `WHOLE` that a varint stands for. As in protobuf, surplus bits are cut."""
    if number < _SIGN and kind != "bool":  # the usual case
        return number
    found: bool | int = np.uint64(number & _WORD).astype(WHOLE[kind]).item()
    return found


def _varints(data: Array, found: Array) -> Array | None:
    """Fill ``found`` with the varints in these bytes; ``None`` if there are more or fewer of them."""
    done = 0
    while len(data):
        ends = np.flatnonzero(data[:_CHUNK] < _MORE) + 1
        if not 0 < len(ends) <= len(found) - done:
            return None
        starts = np.concatenate(([0], ends[:-1]))
        sizes = ends - starts
        longest = int(sizes.max())
        if longest > _LONGEST:
            return None
        values = np.zeros(len(ends), np.uint64)
        for place in range(longest):
            there = sizes > place
            part = (data[starts[there] + place] & 0x7F).astype(np.uint64)
            values[there] |= part << np.uint64(7 * place)
        # As protobuf does: of a longer number the lowest bits are taken.
        found[done : done + len(ends)] = values.astype(found.dtype)
        done += len(ends)
        data = data[ends[-1] :]
    return found if done == len(found) else None
