"""Samples the minibatches of a table: each when the learner wants it, or ahead, while the learner uses the one before.

Both ways sample the same rows, unless priorities change in between: a minibatch that is sampled ahead is sampled by the
priorities that stood when the step before began. Knows nothing of what is learned.
"""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penstock.replay.sampler import RowSampler
from penstock.types import Arrays

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Ahead", "AtOnce", "SampleSpec", "Sampled", "Sampling", "buffer_count", "sampling"]

AHEAD_FROM_BYTES = 1 << 20
"""From this size on, copying a minibatch takes longer than waking the thread that copies it (some 50 us)."""
BUFFERS = 3
"""The learner uses one, the thread fills one, and a GPU may still be reading a third."""


class Sampled(NamedTuple):
    """A minibatch. Valid until the next one is taken."""

    rows: Arrays
    """Field -> ``[m, ...]``."""
    places: Arrays
    """``index`` and ``stamp``, int64 ``[m]``: where the rows lie in the table."""


class SampleSpec(NamedTuple):
    """What to sample. Equal specs give the same rows, as long as table and priorities do not change."""

    key: tuple[int, int]
    before: tuple[int, ...]
    beta: float


class Sampling(Protocol):
    """Where a learner's minibatches come from."""

    def take(self, wanted: SampleSpec, then: SampleSpec | None) -> Sampled:
        """The minibatch that is wanted now. ``then`` is the next one, if it is known.

        Raises:
            ResourceError: the table has no row to sample.
        """
        ...

    def settle(self) -> None:
        """Return once nothing is being sampled. Priorities may change then."""
        ...


def sampling(sampler: RowSampler, new_buffers: Callable[[], Arrays], size: int, *, device: str) -> Sampling:
    """`Ahead` for minibatches that take long to copy and for learners on a GPU, otherwise `AtOnce`.

    Args:
        sampler: samples the rows.
        new_buffers: makes the arrays of one minibatch.
        size: rows of a minibatch.
        device: the learner's.
    """
    first = new_buffers()
    count = buffer_count(sum(array.nbytes for array in first.values()), device)
    if count == 1:
        return AtOnce(sampler, _buffer(first, size))
    # The learner may read the first buffers in place, so the thread must not fill them meanwhile. Deleting them also
    # gives pinned memory back, for the next ones.
    del first
    return Ahead(sampler, [_buffer(new_buffers(), size) for _ in range(count)])


def buffer_count(nbytes: int, device: str) -> int:
    """How many minibatches of ``nbytes`` a learner on this device holds at once."""
    return 1 if device == "cpu" and nbytes < AHEAD_FROM_BYTES else BUFFERS


def _buffer(rows: Arrays, size: int) -> Sampled:
    return Sampled(rows, {name: np.zeros(size, np.int64) for name in ("index", "stamp")})


class AtOnce:
    """Samples when asked, into one buffer."""

    def __init__(self, sampler: RowSampler, buffer: Sampled) -> None:
        self._sampler = sampler
        self._buffer = buffer

    def take(self, wanted: SampleSpec, then: SampleSpec | None) -> Sampled:
        """As `Sampling.take`."""
        del then
        _fill(self._sampler, wanted, self._buffer)
        return self._buffer

    def settle(self) -> None:
        """As `Sampling.settle`."""


class Ahead:
    """Samples the next minibatch in a thread of its own while the learner uses this one. Sampling holds no GIL."""

    def __init__(self, sampler: RowSampler, buffers: Sequence[Sampled]) -> None:
        # Not at the top: a thread that still runs while the interpreter ends, as a launcher's may, cannot import it.
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        self._sampler = sampler
        self._buffers = cycle(buffers)
        self._thread = ThreadPoolExecutor(1, "sample")
        self._coming: tuple[SampleSpec, Sampled, Future[None]] | None = None

    def take(self, wanted: SampleSpec, then: SampleSpec | None) -> Sampled:
        """As `Sampling.take`."""
        coming, self._coming = self._coming, None
        # Wait also for a minibatch that is no longer wanted: only one thread at a time may use the sampler.
        if coming is not None:
            coming[2].result()
        if coming is not None and coming[0] == wanted:
            taken = coming[1]
        else:
            taken = next(self._buffers)
            _fill(self._sampler, wanted, taken)
        if then is not None:
            buffer = next(self._buffers)
            self._coming = then, buffer, self._thread.submit(_fill, self._sampler, then, buffer)
        return taken

    def settle(self) -> None:
        """As `Sampling.settle`."""
        if self._coming is not None:
            self._coming[2].result()


def _fill(sampler: RowSampler, wanted: SampleSpec, buffer: Sampled) -> None:
    sampler.sample(wanted.key, buffer.rows | buffer.places, list(wanted.before), wanted.beta)
