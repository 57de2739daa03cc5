"""After every update: the learner commits its record and publishes, until a second process has read it.

    python -m benchmarks.publish                # about 15 seconds on 2 cores
    python -m benchmarks.publish --write FILE

The record holds both networks, their moments, all counters and the position of each lane; the networks are published.
The reader looks for a new version without sleeping. The peer sends the same named arrays through
``multiprocessing.Pipe``, pickled, and nothing of it survives a death. The limit: NumPy copies as many bytes as often,
within one process.
"""

import multiprocessing
from collections.abc import Callable

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.crossing import Rival, across, shared
from benchmarks.measured import Measured, parser, report
from benchmarks.timing import Contestant, each_call
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.envs.sources import probe
from penstock.memory.board import Board
from penstock.memory.record import Record
from penstock.nodes.learner.record import record_specs
from penstock.types import Arrays, ArraySpec

LANES, WORKERS = 8, 2
"""The published setting on 2 cores."""


class LearnerWay:
    """A learner's record and its board."""

    def __init__(self, record: tuple[ArraySpec, ...], published: tuple[ArraySpec, ...], arrays: Arrays) -> None:
        self._record = Record(shared(Record.required(record)), record)
        self._board = Board(shared(Board.required(published)), published)
        self._arrays = arrays
        self._target = {part.name: np.zeros(part.shape, part.dtype) for part in published}

    def send(self, number: int) -> None:
        """Commit, then publish."""
        self._record.write(self._arrays, number)
        self._board.publish(self._arrays, number)

    def receive(self, number: int) -> None:
        """Wait for the version and copy it."""
        while self._board.version() != number:
            pass
        self._board.read(self._target)

    def commit(self) -> None:
        """The commit alone."""
        self._record.write(self._arrays, 0)


class PickleWay:
    """Named arrays through ``multiprocessing.Pipe``, as libraries send a state dict."""

    def __init__(self, published: tuple[ArraySpec, ...], arrays: Arrays) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        self._arrays = {part.name: arrays[part.name] for part in published}

    def send(self, number: int) -> None:
        """Pickle and write."""
        self._writer.send(self._arrays)

    def receive(self, number: int) -> None:
        """Read and unpickle."""
        self._reader.recv()


def copies(record: tuple[ArraySpec, ...], published: tuple[ArraySpec, ...]) -> Callable[[], None]:
    """Copies the bytes of a record once, and the published bytes twice."""
    sizes = (*(sum(part.nbytes for part in specs) for specs in (record, published, published)),)
    pairs = [(np.ones(size, np.uint8), np.ones(size, np.uint8)) for size in sizes]

    def copy() -> None:
        for target, source in pairs:
            np.copyto(target, source)

    return copy


def measure(hidden: tuple[int, int], rounds: int, messages: int) -> list[Measured]:
    """The rows of two networks with these hidden layers."""
    spaces, config = probe("Pendulum-v1").spaces, PPOConfig(hidden_sizes=hidden)
    algorithm = spec(spaces, config)
    record, published = record_specs(algorithm, LANES, WORKERS), tuple(algorithm.published())
    arrays = {part.name: np.zeros(part.shape, part.dtype) for part in record} | init_state(spaces, config, 0)
    parameters = sum(network.num_parameters for network in algorithm.policy.networks)
    rivals = [
        Rival("commit and publish, until read", "penstock", LearnerWay(record, published, arrays)),
        Rival("multiprocessing.Pipe, pickled", "peer", PickleWay(published, arrays)),
    ]
    commit = LearnerWay(record, published, arrays).commit
    beside = [
        Contestant("commit alone", "penstock", each_call(commit, messages)),
        Contestant("as many bytes by NumPy, one process", "limit", each_call(copies(record, published), messages)),
    ]
    case = f"PPO, two networks of {hidden[0]}, {hidden[1]}: {parameters:,} parameters and their moments"
    return across(case, rivals, messages, rounds, beside)


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("publish", __doc__, rounds=7)
    arguments.add_argument("--messages", type=positive_int, default=500, help="publications of a round")
    args = arguments.parse_args()
    rows = [row for hidden in ((64, 64), (256, 256)) for row in measure(hidden, args.rounds, args.messages)]
    report(arguments, args, rows, {})


if __name__ == "__main__":
    main()
