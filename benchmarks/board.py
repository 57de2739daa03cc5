"""Publishing parameters on a board until a second process has read them, for several sizes.

    python -m benchmarks.board                # about 25 seconds on 2 cores
    python -m benchmarks.board --write FILE

The reader looks for a new version without sleeping; `benchmarks.doorbell` measures the time to wake it. The peer is a
pipe that carries only the bytes, without a header or a pickle. The limit: NumPy copies as many bytes twice within one
process, from the writer's array and into the reader's. 100,000 parameters may take 60 us at the 99th percentile.
"""

import multiprocessing

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.crossing import Rival, across, shared
from benchmarks.measured import Measured, parser, report
from benchmarks.timing import Contestant, each_call
from penstock.memory.board import Board
from penstock.types import ArraySpec

SIZES = (1_000, 10_000, 100_000)
P99_MAY_BE_US = {100_000: 60.0}


class BoardWay:
    """A board of one array of ``size`` floats."""

    def __init__(self, size: int) -> None:
        specs = [ArraySpec("parameters", (size,), "float32")]
        self._board = Board(shared(Board.required(specs)), specs)
        self._source = {"parameters": np.ones(size, np.float32)}
        self._target = {"parameters": np.zeros(size, np.float32)}

    def send(self, number: int) -> None:
        """Publish."""
        self._board.publish(self._source, number)

    def receive(self, number: int) -> None:
        """Wait for the version and copy it."""
        while self._board.version() != number:
            pass
        self._board.read(self._target)

    def publish(self) -> None:
        """The writer's part alone."""
        self._board.publish(self._source, 0)

    def read(self) -> None:
        """The reader's part alone."""
        self._board.read(self._target)


class PipeWay:
    """The bytes of ``size`` floats through ``multiprocessing.Pipe``."""

    def __init__(self, size: int) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        self._source, self._target = np.ones(size, np.float32), np.zeros(size, np.float32)

    def send(self, number: int) -> None:
        """Write the bytes."""
        self._writer.send_bytes(self._source.data)

    def receive(self, number: int) -> None:
        """Read them into an array."""
        self._reader.recv_bytes_into(self._target.data)


class Copies:
    """Two copies of ``size`` floats, by way of memory between them."""

    def __init__(self, size: int) -> None:
        self._source, self._between, self._target = (np.ones(size, np.float32) for _ in range(3))

    def __call__(self) -> None:
        """Copy."""
        np.copyto(self._between, self._source)
        np.copyto(self._target, self._between)


def measure(size: int, rounds: int, messages: int) -> list[Measured]:
    """The rows of one size."""
    alone = BoardWay(size)
    rivals = [
        Rival("board, published until read", "penstock", BoardWay(size)),
        Rival("multiprocessing.Pipe, bytes alone", "peer", PipeWay(size)),
    ]
    beside = [
        Contestant("board, publish alone", "penstock", each_call(alone.publish, messages)),
        Contestant("board, read alone", "penstock", each_call(alone.read, messages)),
        Contestant("two copies by NumPy, one process", "limit", each_call(Copies(size), messages)),
    ]
    whole, *others = across(f"{size:,} parameters to a second process", rivals, messages, rounds, beside)
    return [whole._replace(p99_may_be_us=P99_MAY_BE_US.get(size)), *others]


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("board", __doc__, rounds=7)
    arguments.add_argument("--sizes", type=positive_int, nargs="+", default=SIZES, help="numbers of parameters")
    arguments.add_argument("--messages", type=positive_int, default=500, help="publications of a round")
    args = arguments.parse_args()
    rows = [row for size in args.sizes for row in measure(size, args.rounds, args.messages)]
    report(arguments, args, rows, {})


if __name__ == "__main__":
    main()
