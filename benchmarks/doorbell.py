"""Waking a process that sleeps on its doorbell: from the ring to the first thing that it does.

    python -m benchmarks.doorbell                # about 15 seconds on 2 cores
    python -m benchmarks.doorbell --write FILE

The peers are other ways to wake a process: an eventfd, pipes, ``multiprocessing.Event``. The limit is a process that
does not sleep, but reads one word until it changes. The bar for a wake-up is 25 us, and 60 us at the 99th percentile.
"""

import multiprocessing
import os

from benchmarks.arguments import positive_int
from benchmarks.crossing import Rival, across, shared
from benchmarks.measured import Measured, parser, report
from benchmarks.slots import WordWay
from penstock.memory.doorbell import Doorbells

CASE = "waking a process that sleeps"
MAY_BE_US, P99_MAY_BE_US = 25.0, 60.0


class BellWay:
    """A doorbell; its owner sleeps without spinning first."""

    def __init__(self) -> None:
        self._bells = Doorbells(shared(Doorbells.required(1)), 1)
        self._seen = self._bells.word(0)

    def send(self, number: int) -> None:
        """Ring."""
        self._bells.ring(0)

    def receive(self, number: int) -> None:
        """Sleep until it rings."""
        while (word := self._bells.word(0)) == self._seen:
            self._bells.wait(0, word)
        self._seen = word


class EventDescriptorWay:
    """A bare eventfd, which Linux has."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0)

    def send(self, number: int) -> None:
        """Add one."""
        os.eventfd_write(self._descriptor, 1)

    def receive(self, number: int) -> None:
        """Sleep until it is not zero."""
        os.eventfd_read(self._descriptor)


class BarePipeWay:
    """A byte through a pipe, by system calls alone."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def send(self, number: int) -> None:
        """Write a byte."""
        os.write(self._writer, b"!")

    def receive(self, number: int) -> None:
        """Sleep until there is a byte."""
        os.read(self._reader, 1)


class ConnectionWay:
    """A number through ``multiprocessing.Pipe``."""

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)

    def send(self, number: int) -> None:
        """Send it."""
        self._writer.send(number)

    def receive(self, number: int) -> None:
        """Sleep until it is here."""
        self._reader.recv()


class EventWay:
    """``multiprocessing.Event``."""

    def __init__(self) -> None:
        self._event = multiprocessing.Event()

    def send(self, number: int) -> None:
        """Set it."""
        self._event.set()

    def receive(self, number: int) -> None:
        """Sleep until it is set."""
        self._event.wait()
        self._event.clear()


def measure(rounds: int, messages: int) -> list[Measured]:
    """A row for each way."""
    rivals = [
        Rival("doorbell", "penstock", BellWay()),
        Rival("pipe, system calls alone", "peer", BarePipeWay()),
        Rival("multiprocessing.Pipe", "peer", ConnectionWay()),
        Rival("multiprocessing.Event", "peer", EventWay()),
        Rival("one word, and nobody sleeps", "limit", WordWay()),
    ]
    if hasattr(os, "eventfd"):
        rivals.insert(1, Rival("eventfd", "peer", EventDescriptorWay()))
    bell, *others = across(CASE, rivals, messages, rounds)
    return [bell._replace(may_be_us=MAY_BE_US, p99_may_be_us=P99_MAY_BE_US), *others]


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("doorbell", __doc__, rounds=7)
    arguments.add_argument("--messages", type=positive_int, default=1000, help="wake-ups of a round")
    args = arguments.parse_args()
    report(arguments, args, measure(args.rounds, args.messages), {})


if __name__ == "__main__":
    main()
