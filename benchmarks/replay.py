"""Inserting rows into a replay table and drawing them, beside torchrl's and stable-baselines3's buffers.

    python -m benchmarks.replay                # about 3 minutes on 2 cores, peers' environments not counted
    python -m benchmarks.replay --peers none   # without them
    python -m benchmarks.replay --write FILE

Rows are as of Pendulum-v1: observation [3], action [1], reward, two flags; a table holds 1,000,000 of them. One process
inserts rollouts of 128 steps of 8 lanes while another draws batches of 256 from Python; then one process alone draws by
priority and gives every row of the batch a new one. Times are of one insertion of 1,024 rows, or of one batch: at least
5,000,000 rows/s inserted while 15,000,000 are drawn, and 4,000,000 drawn by priority and changed.

The limit is NumPy, which takes rows that are known from arrays of the same size, one field after the other.

Images are [4, 84, 84] uint8, observation and next observation: from a table of stacks, and put together from single
frames. The limit there, and where rows are inserted, is NumPy's copy of as many bytes, one block to another.
"""

import multiprocessing
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measured import Measured, parser, report
from benchmarks.peers.install import python_of
from benchmarks.peers.run import parse
from benchmarks.timing import Contestant, compare, each_call
from penstock.memory.segment import Segment
from penstock.memory.table import Table
from penstock.program.rollout import table_specs
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays, Box, Spaces, Stack

STEPS, LANES, BATCH = 128, 8, 256
INSERT_MAY_BE_US = STEPS * LANES / 5.0
SAMPLE_MAY_BE_US = BATCH / 15.0
PRIORITISED_MAY_BE_US = BATCH / 4.0
HERE = Path(__file__).parent
PEERS = {"sb3": "stable-baselines3 ReplayBuffer", "torchrl": "torchrl TensorDictReplayBuffer"}


class Shape(NamedTuple):
    """A table of one kind of rows."""

    obs: Box
    steps: int
    lanes: int
    slots: int

    def make(self, memory: Array | None = None) -> Table:
        """The table, in new memory if there is none."""
        specs = table_specs(self.spaces, (), self.steps, self.lanes, same_step=True)
        if memory is None:
            memory = Segment.create(Table.required(specs, 1, self.slots), "replay").bytes
        return Table(memory, specs, 1, self.slots)

    @property
    def spaces(self) -> Spaces:
        """One observation, one action of one number."""
        return Spaces((("obs", self.obs),), Box((1,), "float32", (-2.0,), (2.0,)))

    @property
    def rows(self) -> int:
        """Rows that can be drawn: the slot that is filled next is left out."""
        return (self.slots - 1) * self.steps * self.lanes

    def batch(self, *frames: int) -> Arrays:
        """What a batch of SAC holds, or of DQN."""
        obs = (BATCH, *frames, *self.obs.shape)
        numbers = {name: np.zeros(BATCH, np.float32) for name in ("reward", "discount")}
        return {
            "obs": np.zeros(obs, self.obs.dtype),
            "next.obs": np.zeros(obs, self.obs.dtype),
            "action": np.zeros((BATCH, 1), np.float32),
            **numbers,
        }


def pendulum(rows: int) -> Shape:
    """A table of so many rows that can be drawn."""
    return Shape(Box((3,), "float32", (-8.0,) * 3, (8.0,) * 3), STEPS, LANES, -(-rows // (STEPS * LANES)) + 1)


STACKS = Shape(Box((4, 84, 84), "uint8", (0.0,), (255.0,)), 16, 4, 128)
FRAMES = Shape(Box((84, 84), "uint8", (0.0,), (255.0,)), 16, 4, 512)


class Inserting:
    """Fills one slot after the other from a rollout that is there already: what its fields cost to store."""

    def __init__(self, table: Table) -> None:
        slot = table.slot(0)
        rng = np.random.default_rng(0)
        kept = ("obs", "action", "reward", "terminated", "truncated", "valid", "continues", "steps_before")
        self._table, self._next = table, table.written(0)
        self._rollout = {name: (255 * rng.random(slot[name].shape)).astype(slot[name].dtype) for name in kept}
        self._rollout["terminated"][:], self._rollout["truncated"][:] = False, False
        self._rollout["valid"][:], self._rollout["continues"][:], self._rollout["steps_before"][:] = True, True, 1
        self._fields = list(self._rollout.items())
        self.nbytes = sum(array.nbytes for array in self._rollout.values())

    def __call__(self) -> None:
        """Insert one rollout."""
        table = self._table
        index = table.claim(0, self._next)
        arrays = table.arrays
        for name, array in self._fields:
            arrays[name][index] = array
        arrays["final_count"][index] = 0
        table.push(0, self._next)
        self._next += 1


class Drawing:
    """Draws one batch after the other, each with a key of its own."""

    def __init__(self, table: Table, batch: Arrays, stack: dict[str, Stack], tree: SumTree | None = None) -> None:
        lanes = table.arrays["valid"].shape[-1]
        self._sampler = Sampler(table, lanes, ["obs"], n_step=1, gamma=0.99, stack=stack, tree=tree)
        self._batch, self._number = batch, 0

    def __call__(self) -> None:
        """Draw one batch."""
        self._number += 1
        self._sampler.sample((1, self._number), self._batch)


class Prioritised:
    """Draws a batch by priority, and gives each of its rows a new one."""

    def __init__(self, shape: Shape, table: Table) -> None:
        capacity = table.arrays["valid"].size
        tree = SumTree(Segment.create(SumTree.required(capacity), "tree").bytes, capacity)
        rng = np.random.default_rng(0)
        rows = np.zeros(table.arrays["valid"].shape[1:])
        for sequence in range(max(0, table.written(0) - table.slots), table.written(0)):
            rows[:-1] = rng.random(rows[:-1].shape)
            tree.set(table.index(0, sequence) * rows.size, sequence, rows.ravel())
        extra = {"index": np.zeros(BATCH, np.int64), "stamp": np.zeros(BATCH, np.int64)}
        self._batch = shape.batch() | extra | {"importance": np.zeros(BATCH, np.float32)}
        self._sampler = Sampler(table, shape.lanes, ["obs"], n_step=1, gamma=0.99, stack={}, tree=tree)
        self._priorities = [rng.random(BATCH).astype(np.float32) for _ in range(64)]
        self._tree, self._number = tree, 0

    def __call__(self) -> None:
        """One batch, there and back."""
        self._number += 1
        self._sampler.sample((1, self._number), self._batch, beta=0.4)
        self._tree.update(self._batch["index"], self._batch["stamp"], self._priorities[self._number % 64])


class Copying:
    """NumPy copies so many bytes."""

    def __init__(self, nbytes: int) -> None:
        self._to = np.zeros(nbytes, np.uint8)
        # Not the same bytes each time: rows come from memory, too.
        self._from = np.ones((8, nbytes), np.uint8)
        self._number = 0

    def __call__(self) -> None:
        """Copy one block."""
        self._number += 1
        np.copyto(self._to, self._from[self._number % 8])


class Taking:
    """NumPy takes rows by index from flat arrays: no draw, no end of an episode, nobody who writes."""

    def __init__(self, rows: int, batch: Arrays) -> None:
        rng = np.random.default_rng(0)
        self._fields = [(np.ones((rows, *array.shape[1:]), array.dtype), array) for array in batch.values()]
        self._indices = rng.integers(0, rows, (512, BATCH))
        self._number = 0

    def __call__(self) -> None:
        """Take one batch."""
        self._number += 1
        indices = self._indices[self._number % 512]
        for array, to in self._fields:
            np.take(array, indices, 0, to, "clip")


def filled(shape: Shape) -> Table:
    """A table whose ring is full."""
    table = shape.make()
    insert = Inserting(table)
    for _ in range(shape.slots):
        insert()
    return table


def _insert_for_ever(shape: Shape, memory: Array, stop: "Synchronized[int]") -> None:
    insert = Inserting(shape.make(memory))
    while not stop.value:
        for _ in range(100):
            insert()


@contextmanager
def inserting(shape: Shape, segment: Segment) -> Iterator[None]:
    """While another process inserts as fast as it can."""
    context = multiprocessing.get_context("fork")
    stop = context.Value("i", 0, lock=False)
    process = context.Process(target=_insert_for_ever, args=(shape, segment.bytes, stop))
    process.start()
    yield
    stop.value = 1
    process.join()


def together(shape: Shape, rounds: int, calls: int) -> list[Measured]:
    """One process inserts while this one draws."""
    specs = table_specs(shape.spaces, (), STEPS, LANES, same_step=True)
    segment = Segment.create(Table.required(specs, 1, shape.slots), "replay")
    table = shape.make(segment.bytes)
    insert = Inserting(table)
    for _ in range(shape.slots):
        insert()
    batch = shape.batch()
    draw, inserted = each_call(Drawing(table, batch, {}), calls), []

    def run() -> Array:
        begun, before = time.perf_counter(), table.written(0)
        seconds = draw()
        inserted.append((time.perf_counter() - begun) / max(1, table.written(0) - before))
        return seconds

    taking = each_call(Taking(shape.rows, batch), calls)
    with inserting(shape, segment):
        ways = [Contestant("penstock", "penstock", run), Contestant("NumPy takes known rows", "limit", taking)]
        drawn, *others = compare("draw 256 rows while another process inserts", ways, rounds)
    case = "insert 1,024 rows while another process draws"
    us = round(float(np.median(inserted[1:])) * 1e6, 3)
    copying = Contestant("NumPy copies as many bytes", "limit", each_call(Copying(insert.nbytes), calls))
    return [
        drawn._replace(may_be_us=SAMPLE_MAY_BE_US),
        *others,
        Measured(case, "penstock", "penstock", us, None, INSERT_MAY_BE_US),
        *compare(case, [copying], rounds),
    ]


def alone(shape: Shape, rounds: int, calls: int, peers: Sequence[str]) -> list[Measured]:
    """One process that draws only, uniformly and by priority; and the peers, each in an environment of its own."""
    table, batch = filled(shape), shape.batch()
    limit = Contestant("NumPy takes known rows", "limit", each_call(Taking(shape.rows, batch), calls))
    uniform = Contestant("penstock", "penstock", each_call(Drawing(table, batch, {}), calls))
    ranked = Contestant("penstock", "penstock", each_call(Prioritised(shape, table), calls))
    uniform_rows = compare(f"draw 256 of {shape.rows:,} rows", [uniform, limit], rounds)
    ranked_rows = compare(f"draw 256 of {shape.rows:,} rows by priority, and change them", [ranked, limit], rounds)
    ranked_rows[0] = ranked_rows[0]._replace(may_be_us=PRIORITISED_MAY_BE_US)
    for peer in peers:
        command = [python_of(peer), HERE / f"peers/{peer}_replay.py", "--rows", str(shape.rows), "--batch", str(BATCH)]
        result = parse(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout)
        for key, rows in (("uniform_us", uniform_rows), ("prioritised_us", ranked_rows)):
            if key in result:
                rows.append(Measured(rows[0].case, PEERS[peer], "peer", round(result[key], 3)))
    return [*uniform_rows, *ranked_rows]


def images(rounds: int, calls: int) -> list[Measured]:
    """Batches of 256 observations and next observations of [4, 84, 84]."""
    ways: list[tuple[str, Callable[[], object]]] = [
        ("stored as stacks", Drawing(filled(STACKS), STACKS.batch(), {})),
        ("stacks put together from frames", Drawing(filled(FRAMES), FRAMES.batch(4), {"obs": Stack(4, "first")})),
    ]
    contestants = [Contestant(what, "penstock", each_call(way, calls)) for what, way in ways]
    limit = Contestant("NumPy copies as many bytes", "limit", each_call(Copying(image_bytes()), calls))
    return compare("draw 256 images and the next ones", [*contestants, limit], rounds)


def image_bytes() -> int:
    """Bytes of one batch of images."""
    return sum(array.nbytes for array in STACKS.batch().values())


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("replay", __doc__, rounds=7)
    arguments.add_argument("--calls", type=int, default=20_000, help="batches of a round; of images a hundredth")
    arguments.add_argument("--rows", type=int, default=1_000_000, help="rows of a table")
    arguments.add_argument("--peers", nargs="+", choices=[*PEERS, "none"], default=list(PEERS), help="which of them")
    args = arguments.parse_args()
    shape = pendulum(args.rows)
    # The second process comes first: it is forked before anything else has run.
    rows = together(shape, args.rounds, args.calls)
    rows += alone(shape, args.rounds, args.calls, [peer for peer in args.peers if peer != "none"])
    rows += images(args.rounds, max(1, args.calls // 100))
    report(arguments, args, rows, {"speeds": {f"{row.case}: {row.what}": _speed(row) for row in rows}})
    for row in rows:
        print(f"  {row.case + ': ' + row.what:90} {_speed(row)}")


def _speed(row: Measured) -> str:
    if "images" in row.case:
        return f"{image_bytes() / row.us / 1000:.2f} GB/s"
    rows = STEPS * LANES if row.case.startswith("insert") else BATCH
    return f"{rows / row.us * 1e6:,.0f} rows/s"


if __name__ == "__main__":
    main()
