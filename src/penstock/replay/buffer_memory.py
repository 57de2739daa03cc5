"""The shared memory of a buffer, which processes of ``multiprocessing`` may be given. Samples nothing.

A process that is given it maps the same memory, whatever the start method. The memory is freed with the last process
that holds it.
"""

import weakref
from multiprocessing.reduction import DupFd
from typing import Any

from penstock.errors import PenstockError
from penstock.memory.segment import Segment
from penstock.replay.buffer_layout import BufferLayout
from penstock.replay.priorities import Ranking
from penstock.replay.ring_writer import RingWriter

__all__ = ["BufferMemory"]


class BufferMemory:
    """A table of rollouts, and the priorities of its rows.

    Args:
        layout: of the memory.
        alpha: power of priorities; ``None``: rows have none.
        n_step: most rewards that a sampled row sums up.
        segment: of ``layout.nbytes``.
    """

    def __init__(self, layout: BufferLayout, alpha: float | None, n_step: int, segment: Segment) -> None:
        self.layout = layout
        self.alpha = alpha
        self.n_step = n_step
        self._segment = segment
        self.table = layout.table(segment.bytes)
        self.tree = layout.tree(segment.bytes)
        # A buffer that nobody closes: its descriptor would keep the memory until the process ends.
        weakref.finalize(self, segment.close)

    @classmethod
    def create(cls, layout: BufferLayout, alpha: float | None, n_step: int) -> "BufferMemory":
        """New memory, with nothing written.

        Raises:
            ResourceError: the machine has no space for it.
        """
        return cls(layout, alpha, n_step, Segment.create(layout.nbytes, "replay buffer"))

    def ring_writer(self, number: int) -> RingWriter:
        """A new life of the writer of this number."""
        ranking = None if self.alpha is None else Ranking(self.alpha, None, None)
        return RingWriter(self.layout, self.table, number, self.tree, ranking, sums=self.n_step > 1)

    def close(self) -> None:
        """Let go of the memory. It is unmapped once nothing in this process views it: no writer and no sampler."""
        self._segment.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process that gets it from this one. Several objects of one process that share it get one descriptor."""
        if self._segment.fd < 0:
            raise PenstockError("this replay buffer is closed; give it to processes before")
        return _attached, (self.layout, self.alpha, self.n_step, DupFd(self._segment.fd))


def _attached(layout: BufferLayout, alpha: float | None, n_step: int, held: Any) -> BufferMemory:  # noqa: ANN401 - of the platform
    return BufferMemory(layout, alpha, n_step, Segment.attach(held.detach(), layout.nbytes))
