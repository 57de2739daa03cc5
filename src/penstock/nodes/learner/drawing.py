"""Minibatches of a table, one after the other: drawn when they are wanted, or while the one before is learned from.

Knows nothing of what is learned. Both ways draw the same rows, unless ranks change in between: what is drawn ahead goes
by the ranks that stood when the step before began.
"""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penstock.replay.mixture import Draws
from penstock.types import Arrays

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Ahead", "AtOnce", "Draw", "Drawing", "Drawn", "buffers", "drawing"]

AHEAD_FROM_BYTES = 1 << 20
"""Of a minibatch: from there on copying it takes longer than waking the thread that does it, some 50 us."""
BUFFERS = 3
"""One is learned from, one is drawn into, and a GPU may still be reading a third."""


class Drawn(NamedTuple):
    """A minibatch; valid until the next one is taken."""

    rows: Arrays
    """Field -> ``[m, ...]``."""
    places: Arrays
    """``index`` and ``stamp``, int64 ``[m]``: where the rows lie."""


class Draw(NamedTuple):
    """What is to be drawn. Two that are equal draw the same rows, while the table and its ranks stand."""

    key: tuple[int, int]
    before: tuple[int, ...]
    beta: float


class Drawing(Protocol):
    """Where a learner's minibatches come from."""

    def take(self, draw: Draw, then: Draw | None) -> Drawn:
        """The minibatch that is wanted now; ``then`` is the next one, if that is known.

        Raises:
            ResourceError: there is nothing to draw.
        """
        ...

    def settle(self) -> None:
        """Return once nothing is being drawn: ranks may change."""
        ...


def drawing(sampler: Draws, room: Callable[[], Arrays], size: int, *, device: str) -> Drawing:
    """Ahead where a minibatch takes long to assemble, or its learner is elsewhere; else at once.

    Args:
        sampler: draws.
        room: makes the arrays of a minibatch.
        size: its rows.
        device: that learns from it.
    """
    first = room()
    count = buffers(sum(array.nbytes for array in first.values()), device)
    if count == 1:
        return AtOnce(sampler, _buffer(first, size))
    # The first room may be what the learner reads: nothing is drawn into it while that goes on. One of pinned memory
    # is given back, for the next.
    del first
    return Ahead(sampler, [_buffer(room(), size) for _ in range(count)])


def buffers(nbytes: int, device: str) -> int:
    """How many minibatches of so many bytes are held at once for a learner on this device."""
    return 1 if device == "cpu" and nbytes < AHEAD_FROM_BYTES else BUFFERS


def _buffer(rows: Arrays, size: int) -> Drawn:
    return Drawn(rows, {name: np.zeros(size, np.int64) for name in ("index", "stamp")})


class AtOnce:
    """Draws when asked, into one buffer."""

    def __init__(self, sampler: Draws, buffer: Drawn) -> None:
        self._sampler = sampler
        self._buffer = buffer

    def take(self, draw: Draw, then: Draw | None) -> Drawn:
        """As `Drawing.take`."""
        del then
        _fill(self._sampler, draw, self._buffer)
        return self._buffer

    def settle(self) -> None:
        """As `Drawing.settle`."""


class Ahead:
    """Draws the next minibatch in a thread of its own while this one is learned from; drawing holds no GIL."""

    def __init__(self, sampler: Draws, buffers: Sequence[Drawn]) -> None:
        # Not above: it cannot be imported by a thread that goes on while the interpreter ends, as a launcher's may.
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        self._sampler = sampler
        self._buffers = cycle(buffers)
        self._thread = ThreadPoolExecutor(1, "draw")
        self._coming: tuple[Draw, Drawn, Future[None]] | None = None

    def take(self, draw: Draw, then: Draw | None) -> Drawn:
        """As `Drawing.take`."""
        coming, self._coming = self._coming, None
        # Also one that is not wanted any more: the sampler is for one thread at a time.
        if coming is not None:
            coming[2].result()
        if coming is not None and coming[0] == draw:
            taken = coming[1]
        else:
            taken = next(self._buffers)
            _fill(self._sampler, draw, taken)
        if then is not None:
            buffer = next(self._buffers)
            self._coming = then, buffer, self._thread.submit(_fill, self._sampler, then, buffer)
        return taken

    def settle(self) -> None:
        """As `Drawing.settle`."""
        if self._coming is not None:
            self._coming[2].result()


def _fill(sampler: Draws, draw: Draw, buffer: Drawn) -> None:
    sampler.sample(draw.key, buffer.rows | buffer.places, list(draw.before), draw.beta)
