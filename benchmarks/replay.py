"""Inserting rows into a replay table and sampling them, beside torchrl's and stable-baselines3's buffers.

    python -m benchmarks.replay                # about 3 minutes on 2 cores, peers' environments not counted
    python -m benchmarks.replay --peers none   # without them
    python -m benchmarks.replay --write FILE

Rows are like Pendulum-v1's: observation [3], action [1], reward, two flags, truncated episodes of 200 steps. A table
holds 1,000,000 rows. A batch has 256.

- **Together.** One process copies whole rollouts of 128 steps of 8 lanes into the table, first 6,000,000 rows a second,
  then as fast as it can. Meanwhile another process samples batches from Python. A writer at full speed copies some 20
  times the bar, and leaves less memory bandwidth to the sampler.
- **Alone.** One process samples uniformly, and by priority with a new priority for every row of the batch. It inserts
  as an environment node does: a step of 8 lanes at a time, whole rollouts ranked.
- **Bars.** At least 5,000,000 rows/s are copied while 15,000,000 are sampled, and 4,000,000 are sampled by priority and
  changed. Times are those of 1,024 inserted rows, or of one batch.
- **Peers.** A peer waits in a process of its own and takes its turn in every round. `missing` names the ways that it
  does not have.
- **Limit.** NumPy takes known rows from arrays of the same size, one field after the other.
- **Images** are [4, 84, 84] uint8, observation and next observation: from a table of stacks, and put together from
  single frames. The limit of images and of inserting is NumPy's copy of as many bytes from one block to another.
"""

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.sharedctypes import Synchronized

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.measured import Measured, parser, report
from benchmarks.peers.rounds import Peer, peer
from benchmarks.tables import Shape, StepByStep, WholeRollouts, filled
from benchmarks.timing import Contestant, compare, each_call
from penstock.memory.segment import Segment
from penstock.memory.table import Table
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays, Box, Stack

STEPS, LANES, BATCH = 128, 8, 256
PACE = 6_000_000
"""Rows that a second process inserts each second, a little more than the bar."""
BURST = 16
"""Number of rollouts between two readings of the clock."""
INSERT_MAY_BE_US = STEPS * LANES / 5.0
SAMPLE_MAY_BE_US = BATCH / 15.0
PRIORITISED_MAY_BE_US = BATCH / 4.0
PEERS = {"sb3": "stable-baselines3 ReplayBuffer", "torchrl": "torchrl TensorDictReplayBuffer"}


def pendulum(rows: int) -> Shape:
    """A table with this many rows that can be sampled."""
    return Shape(Box((3,), "float32", (-8.0,) * 3, (8.0,) * 3), STEPS, LANES, -(-rows // (STEPS * LANES)) + 1)


STACKS = Shape(Box((4, 84, 84), "uint8", (0.0,), (255.0,)), 16, 4, 128)
FRAMES = Shape(Box((84, 84), "uint8", (0.0,), (255.0,)), 16, 4, 512)


def batch_of(shape: Shape, *frames: int) -> Arrays:
    """The arrays of a batch of SAC, or of DQN."""
    obs = (BATCH, *frames, *shape.obs.shape)
    numbers = {name: np.zeros(BATCH, np.float32) for name in ("reward", "discount")}
    return {
        "obs": np.zeros(obs, shape.obs.dtype),
        "next.obs": np.zeros(obs, shape.obs.dtype),
        "action": np.zeros((BATCH, 1), np.float32),
        **numbers,
    }


def tree_beside(table: Table) -> SumTree:
    """A tree in which no row has a priority yet."""
    capacity = table.arrays["valid"].size
    return SumTree(Segment.create(SumTree.required(capacity), "tree").bytes, capacity)


class Sampling:
    """Samples one batch after the other, each with a key of its own."""

    def __init__(self, table: Table, batch: Arrays, stack: dict[str, Stack], n_step: int = 1) -> None:
        lanes = table.arrays["valid"].shape[-1]
        self._sampler = Sampler(table, lanes, ["obs"], n_step=n_step, gamma=0.99, stack=stack)
        self._batch, self._number = batch, 0

    def __call__(self) -> None:
        """Sample one batch."""
        self._number += 1
        self._sampler.sample((1, self._number), self._batch)


class Prioritised:
    """Samples a batch by priority, and gives each of its rows a new priority."""

    def __init__(self, shape: Shape, table: Table) -> None:
        tree = tree_beside(table)
        rng = np.random.default_rng(0)
        rows = np.zeros(table.arrays["valid"].shape[1:])
        for sequence in range(max(0, table.written(0) - table.slots), table.written(0)):
            rows[:-1] = rng.random(rows[:-1].shape)
            tree.set(table.index(0, sequence) * rows.size, sequence, rows.ravel())
        extra = {"index": np.zeros(BATCH, np.int64), "stamp": np.zeros(BATCH, np.int64)}
        self._batch = batch_of(shape) | extra | {"importance": np.zeros(BATCH, np.float32)}
        self._sampler = Sampler(table, shape.lanes, ["obs"], n_step=1, gamma=0.99, stack={}, tree=tree)
        self._priorities = [rng.random(BATCH).astype(np.float32) for _ in range(64)]
        self._tree, self._number = tree, 0

    def __call__(self) -> None:
        """Sample one batch, and change its priorities."""
        self._number += 1
        self._sampler.sample((1, self._number), self._batch, beta=0.4)
        self._tree.update(self._batch["index"], self._batch["stamp"], self._priorities[self._number % 64])


class Copying:
    """NumPy copies this many bytes."""

    def __init__(self, nbytes: int) -> None:
        self._to = np.zeros(nbytes, np.uint8)
        # The bytes are other ones each time, because sampled rows are not in a cache either.
        self._from = np.ones((8, nbytes), np.uint8)
        self._number = 0

    def __call__(self) -> None:
        """Copy one block."""
        self._number += 1
        np.copyto(self._to, self._from[self._number % 8])


class Taking:
    """NumPy takes rows by index from flat arrays: no random rows, no ends of episodes, no writer."""

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


def _insert_for_ever(shape: Shape, memory: Array, pace: float, stop: "Synchronized[int]") -> None:
    insert = WholeRollouts(shape, shape.make(memory))
    burst_s, due = BURST * shape.steps * shape.lanes / pace, time.perf_counter()
    while not stop.value:
        for _ in range(BURST):
            insert()
        # A writer that lost its core catches up by one burst only.
        due = max(due, time.perf_counter() - burst_s) + burst_s
        time.sleep(max(0.0, due - time.perf_counter()))


@contextmanager
def inserting(shape: Shape, segment: Segment, pace: float) -> Iterator[None]:
    """The body runs while another process inserts this many rows a second, or as many as it can."""
    context = multiprocessing.get_context("fork")
    stop = context.Value("i", 0, lock=False)
    process = context.Process(target=_insert_for_ever, args=(shape, segment.bytes, pace, stop))
    process.start()
    try:
        yield
    finally:
        stop.value = 1
        process.join()


def together(shape: Shape, rounds: int, calls: int, pace: float) -> list[Measured]:
    """One process inserts while this one samples."""
    how = "as fast as it can" if math.isinf(pace) else f"{pace:,.0f} rows/s"
    segment = Segment.create(Table.required(shape.specs, 1, shape.slots), "replay")
    table = shape.make(segment.bytes)
    insert = WholeRollouts(shape, table)
    for _ in range(shape.slots):
        insert()
    batch = batch_of(shape)
    draw, inserted = each_call(Sampling(table, batch, {}), calls), []

    def run() -> Array:
        begun, before = time.perf_counter(), table.written(0)
        seconds = draw()
        inserted.append((time.perf_counter() - begun) / max(1, table.written(0) - before))
        return seconds

    ways = [
        Contestant("penstock", "penstock", run),
        Contestant("NumPy takes known rows", "limit", each_call(Taking(shape.rows, batch), calls)),
        Contestant("NumPy copies as many bytes", "limit", each_call(Copying(insert.nbytes), calls)),
    ]
    with inserting(shape, segment, pace):
        drawn, taken, copied = compare(f"draw 256 rows while another process inserts {how}", ways, rounds)
    case = f"copy whole rollouts of 1,024 rows, {how}, while another process draws"
    us = round(float(np.median(inserted[1:])) * 1e6, 3)
    return [
        drawn._replace(may_be_us=SAMPLE_MAY_BE_US),
        taken,
        Measured(case, "penstock", "penstock", us, None, INSERT_MAY_BE_US),
        copied._replace(case=case),
    ]


def alone(shape: Shape, rounds: int, calls: int, peers: Mapping[str, Peer]) -> list[Measured]:
    """One process only samples, uniformly and by priority, or only inserts. The peers take turns with it."""
    table, batch = filled(shape), batch_of(shape)
    limit = Contestant("NumPy takes known rows", "limit", each_call(Taking(shape.rows, batch), calls))
    uniform = [
        Contestant("penstock", "penstock", each_call(Sampling(table, batch, {}), calls)),
        Contestant("penstock, targets of 3 steps", "penstock", each_call(Sampling(table, batch, {}, 3), calls)),
        *asked(peers, "uniform", max(1, calls // 10)),
        limit,
    ]
    ranked = [
        Contestant("penstock", "penstock", each_call(Prioritised(shape, table), calls)),
        *asked(peers, "prioritised", max(1, calls // 10)),
        limit,
    ]
    ranked_rows = compare(f"draw 256 of {shape.rows:,} rows by priority, and change them", ranked, rounds)
    return [
        *compare(f"draw 256 of {shape.rows:,} rows", uniform, rounds),
        ranked_rows[0]._replace(may_be_us=PRIORITISED_MAY_BE_US),
        *ranked_rows[1:],
        *inserted_alone(shape, table, rounds, max(1, calls // 100), peers),
    ]


def inserted_alone(shape: Shape, table: Table, rounds: int, calls: int, peers: Mapping[str, Peer]) -> list[Measured]:
    """One process inserts rows, as penstock does and as whole rollouts. No process samples."""
    whole = WholeRollouts(shape, table)
    copying = Contestant("NumPy copies as many bytes", "limit", each_call(Copying(whole.nbytes), calls))
    ranked = StepByStep(shape, table, tree_beside(table))
    steps = [
        Contestant("penstock", "penstock", each_call(StepByStep(shape, table), calls)),
        Contestant("penstock, ranked", "penstock", each_call(ranked, calls)),
        *asked(peers, "insert_steps", max(1, calls // 10)),
        copying,
    ]
    blocks = [
        Contestant("penstock", "penstock", each_call(whole, calls)),
        *asked(peers, "insert_whole", max(1, calls // 10)),
        copying,
    ]
    return [
        *compare("insert 1,024 rows, a step of 8 lanes at a time", steps, rounds),
        *compare("copy whole rollouts of 1,024 rows", blocks, rounds),
    ]


def asked(peers: Mapping[str, Peer], way: str, calls: int) -> list[Contestant]:
    """The peers that have this way."""
    able = {name: found for name, found in peers.items() if way in found.ways}
    return [Contestant(PEERS[name], "peer", found.each_call(way, calls)) for name, found in able.items()]


def images(rounds: int, calls: int) -> list[Measured]:
    """Batches of 256 observations and next observations of [4, 84, 84]."""
    ways: list[tuple[str, Callable[[], object]]] = [
        ("stored as stacks", Sampling(filled(STACKS), batch_of(STACKS), {})),
        ("stacks put together from frames", Sampling(filled(FRAMES), batch_of(FRAMES, 4), {"obs": Stack(4, "first")})),
    ]
    contestants = [Contestant(what, "penstock", each_call(way, calls)) for what, way in ways]
    limit = Contestant("NumPy copies as many bytes", "limit", each_call(Copying(image_bytes()), calls))
    return compare("draw 256 images and the next ones", [*contestants, limit], rounds)


def image_bytes() -> int:
    """Bytes of one batch of images."""
    return sum(array.nbytes for array in batch_of(STACKS).values())


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("replay", __doc__, rounds=7)
    arguments.add_argument("--calls", type=positive_int, default=20_000, help="batches of a round; images: a hundredth")
    arguments.add_argument("--rows", type=positive_int, default=1_000_000, help="rows of a table")
    arguments.add_argument("--peers", nargs="+", choices=[*PEERS, "none"], default=list(PEERS), help="which of them")
    args = arguments.parse_args()
    shape = pendulum(args.rows)
    # The second process is forked before anything else has run.
    rows = [row for pace in (PACE, math.inf) for row in together(shape, args.rounds, args.calls, pace)]
    sizes = ["--rows", str(shape.rows), "--batch", str(BATCH)]
    with ExitStack() as started:
        names = [name for name in args.peers if name != "none"]
        peers = {name: started.enter_context(peer(name, "replay", sizes)) for name in names}
        rows += alone(shape, args.rounds, args.calls, peers)
    rows += images(args.rounds, max(1, args.calls // 100))
    missing = {PEERS[name]: found.missing for name, found in peers.items() if found.missing}
    speeds = {f"{row.case}: {row.what}": _speed(row) for row in rows}
    report(arguments, args, rows, {"speeds": speeds, "missing": missing})
    for row in rows:
        print(f"  {row.case + ': ' + row.what:90} {_speed(row)}")
    for name, ways in missing.items():
        print(*(f"  {name} has no {way}: {reason}" for way, reason in ways.items()), sep="\n")


def _speed(row: Measured) -> str:
    if "images" in row.case:
        return f"{image_bytes() / row.us / 1000:.2f} GB/s"
    rows = BATCH if row.case.startswith("draw") else STEPS * LANES
    return f"{rows / row.us * 1e6:,.0f} rows/s"


if __name__ == "__main__":
    main()
