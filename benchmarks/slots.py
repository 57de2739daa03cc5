"""Handing slots of a stream over: within a process, and to a second one that looks for them without sleeping.

    python -m benchmarks.slots                # about 20 seconds on 2 cores
    python -m benchmarks.slots --write FILE

A slot goes round once: claimed, pushed, taken, released. Peers carry the same index there and back. The limit is the
same number of bare atomic additions from Python; across processes it is one word that is read until it changes.
A rollout's bytes do not travel with its slot; the result also has the cost of one copy of them.
`benchmarks.doorbell` measures the time to wake a sleeping reader.
"""

import multiprocessing
import queue

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.crossing import Rival, across, shared
from benchmarks.measured import Measured, parser, report
from benchmarks.timing import Contestant, compare, per_call
from penstock.memory import _native
from penstock.memory.stream import Stream
from penstock.types import ArraySpec

SLOTS = 8
ROLLOUT = ArraySpec("rows", (2048, 4, 32), "uint8")
"""A rollout of half the lanes of the published setting. A row has as many bytes as Pendulum's."""
WRITER, READER = 1, 2
WITHIN = "a slot's way there and back, one process"
ACROSS = "a slot to a second process that does not sleep"


class SlotWay:
    """A slot of a stream. The reader looks again and again."""

    def __init__(self) -> None:
        self._stream = Stream(shared(Stream.required([ROLLOUT], SLOTS)), [ROLLOUT], SLOTS)

    def send(self, number: int) -> None:
        """Claim a slot and push it."""
        index = self._stream.claim(WRITER, number)
        if index is None:
            raise RuntimeError("no slot is free")
        self._stream.push(index, WRITER)

    def receive(self, number: int) -> None:
        """Take the slot and release it."""
        while (index := self._stream.take(READER)) is None:
            pass
        self._stream.release(index, READER)

    def round_trip(self) -> None:
        """Both, in one process."""
        self.send(0)
        self.receive(0)


class PipeWay:
    """The index through a pipe; within a process back through another pipe. The reader looks again and again."""

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)

    def send(self, number: int) -> None:
        """Send an index."""
        self._writer.send(number % SLOTS)

    def receive(self, number: int) -> None:
        """Receive the index."""
        while not self._reader.poll():
            pass
        self._reader.recv()

    def there(self) -> None:
        """Both, in one process, where nothing has to be waited for."""
        self._writer.send(0)
        self._reader.recv()


class QueueWay:
    """The index through ``multiprocessing.Queue``."""

    def __init__(self) -> None:
        self._queue: multiprocessing.Queue[int] = multiprocessing.Queue()

    def send(self, number: int) -> None:
        """Put an index."""
        self._queue.put(number % SLOTS)

    def receive(self, number: int) -> None:
        """Get the index. This reader sleeps, because looking again and again would block its writer."""
        self._queue.get()


class WordWay:
    """One word of shared memory. The reader looks again and again. Python cannot reach a word faster."""

    def __init__(self) -> None:
        self._words = shared(64).view(np.int64).data

    def send(self, number: int) -> None:
        """Change the word."""
        self._words[0] = number

    def receive(self, number: int) -> None:
        """See the word changed."""
        words = self._words
        while words[0] != number:
            pass


def within(rounds: int, calls: int) -> list[Measured]:
    """A whole way round, in one process."""
    slots, pipes = SlotWay(), (PipeWay(), PipeWay())
    counters = _native.Counters(shared(_native.Counters.required(1, 1)), 1, 1, True)
    queues = (queue.SimpleQueue[int](), queue.SimpleQueue[int]())
    rollout, copy = (np.ones(ROLLOUT.shape, ROLLOUT.dtype) for _ in range(2))

    def additions() -> None:
        """As many atomic operations as a slot's way round has, each a call of the native module."""
        add = counters.add
        add(0, 0, 1)
        add(0, 0, 1)
        add(0, 0, 1)
        add(0, 0, 1)

    def through_queues() -> None:
        for one in queues:
            one.put(0)
            one.get()

    def through_pipes() -> None:
        for one in pipes:
            one.there()

    contestants = (
        Contestant("claim, push, take, release", "penstock", per_call(slots.round_trip, calls)),
        Contestant("queue.SimpleQueue, of threads", "peer", per_call(through_queues, calls)),
        Contestant("multiprocessing.Pipe", "peer", per_call(through_pipes, calls)),
        Contestant("four atomic additions", "limit", per_call(additions, calls)),
        Contestant(
            f"one copy of a rollout of {ROLLOUT.nbytes / 1e6:.2f} MB",
            "limit",
            per_call(lambda: np.copyto(copy, rollout), calls),
        ),
    )
    return compare(WITHIN, contestants, rounds)


def to_second_process(rounds: int, messages: int) -> list[Measured]:
    """One way, to a reader elsewhere."""
    rivals = (
        Rival("claim, push; take, release", "penstock", SlotWay()),
        Rival("multiprocessing.Pipe", "peer", PipeWay()),
        Rival("multiprocessing.Queue, which sleeps", "peer", QueueWay()),
        Rival("one word that changes", "limit", WordWay()),
    )
    return across(ACROSS, rivals, messages, rounds)


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("slots", __doc__, rounds=7)
    arguments.add_argument("--calls", type=positive_int, default=5000, help="calls of a round within a process")
    arguments.add_argument("--messages", type=positive_int, default=1000, help="messages of a round between processes")
    args = arguments.parse_args()
    # The second processes are forked before anything else has run.
    elsewhere = to_second_process(args.rounds, args.messages)
    report(arguments, args, [*within(args.rounds, args.calls), *elsewhere], {"slots": SLOTS})


if __name__ == "__main__":
    main()
