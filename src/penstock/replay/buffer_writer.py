"""The writer of a buffer, as the processes of a user have it. Samples nothing."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from penstock.replay.buffer_memory import BufferMemory
from penstock.replay.ring_writer import RingWriter

__all__ = ["BufferWriter"]


class BufferWriter:
    """Writes rows of its lanes into a `ReplayBuffer`, from any process of this machine.

    It may be given to a process of ``multiprocessing``, before the first ``push``. One process at a time may use the
    writer of a number. If that is killed, its successor takes the writer of the same number. Rows of a rollout that was
    not whole are lost then; no reader has seen them. A ``with`` block ends with `flush`.

    Attributes:
        number: of the writer.
    """

    def __init__(self, memory: BufferMemory, number: int) -> None:
        """Use `ReplayBuffer.writer`."""
        self.number = number
        self._memory = memory
        self._ring: RingWriter | None = None

    def push(self, rows: Mapping[str, Any]) -> None:
        """Append steps of its lanes, in the order of time. Waits for nobody: the oldest rows are overwritten.

        Rows can be sampled once their rollout is whole, or after `flush`.

        Args:
            rows: name -> ``[k, lanes, ...]``, as `penstock.ParallelEnvironmentCollector.collect` returns them: the
                fields of the buffer, ``next_<field>`` for each observation field, ``reward``, ``terminated``,
                ``truncated``, and ``valid`` (bool), false for a row that carries no step; left out: all are true. One
                step may come as ``[lanes, ...]``; of a single lane also k steps as ``[k, ...]``, and one as ``[...]``.
                Other names are ignored. ``next_<field>`` is the observation that followed the step. After a truncated
                step that is the last one of its episode; after a terminated step it is never used.

        Raises:
            BadDataError: a field is missing, has another shape or kind of number, or holds NaN or infinity, or a step
                does not begin with the observation after the step before, though no episode has ended. Then none of
                these steps is stored.
            UsageError: another writer of this number has pushed a rollout since this one began.
        """
        self._own_ring().push(rows)

    def flush(self) -> None:
        """Let all steps so far be sampled. The rest of their rollout stays empty, so call it seldom.

        The next step may begin with any observation.
        """
        self._own_ring().flush()

    def __enter__(self) -> "BufferWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()

    def __reduce__(self) -> tuple[Any, ...]:
        return BufferWriter, (self._memory, self.number)

    def _own_ring(self) -> RingWriter:
        # Made by the process that writes: it begins where the writer before has stopped.
        if self._ring is None:
            self._ring = self._memory.ring_writer(self.number)
        return self._ring
