"""StreamFollowerNode: which rollouts it takes while other nodes free slots and fill them anew, what it hands on."""

import contextlib
import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from penstock.algorithm import Schedule
from penstock.algorithms.a3c.spec import A3CConfig, spec
from penstock.memory.segment import Segment
from penstock.memory.stream import Stream
from penstock.nodes.learner import StreamFollowerNode, StreamFollowerSettings
from penstock.types import Arrays, ArraySpec, Box, Discrete, Spaces
from penstock.updates.settings import UpdaterSettings
from tests.nodes.test_takeover import Watched

SPACES = Spaces((("obs", Box((2,), "float32", (-1.0, -1.0), (1.0, 1.0))),), Discrete(2))
LEARNERS, ROLLOUTS = 2, 2
NODES = LEARNERS * ROLLOUTS
"""Environment nodes 0 and 1 belong to learner 0, nodes 2 and 3 to learner 1. Each has one lane of 3 steps."""
STEPS = 3
ME = 1
WHOLE = Schedule(epochs=1, mini_batch_size=8)


class Rollouts:
    """Stream ``rollouts``. ``versions``: sequence -> version of the policy that played the rollout."""

    def __init__(self, versions: Mapping[int, int]) -> None:
        self._slots = {sequence: slot for slot, sequence in enumerate(versions)}
        valid = np.ones((len(versions), STEPS + 1, 1), bool)
        self.arrays: Arrays = {"valid": valid}
        self._versions = list(versions.values())

    def written(self) -> dict[int, int]:
        return dict(self._slots)

    def slot(self, index: int) -> Arrays:
        return {"policy_version": np.full((STEPS + 1, 1), self._versions[index])}


class Board:
    """Board ``parameters`` or ``policy``."""

    def __init__(self, version: int, **arrays: object) -> None:
        self._version = version
        self._arrays = arrays

    def version(self) -> int:
        return self._version

    def read(self, into: Arrays) -> int:
        for name, values in into.items():
            values[...] = self._arrays[name]
        return self._version


class Team:
    """Notes what is handed on. A learner may always begin; the divergence of a step is its number."""

    def __init__(self) -> None:
        self.handed_on: list[tuple[list[int], bool, bool]] = []
        self.fields: dict[str, object] = {}

    def in_flight(self) -> bool:
        return False

    def join(self, state: Arrays) -> Arrays:
        return state

    def begin(self, updater: object) -> bool:
        return True

    def found(self) -> dict[str, float]:
        return {"approx_kl": float(len(self.handed_on))}

    def tell(self, name: str, value: object) -> None:
        self.fields[name] = value

    def end(self) -> None:
        named = [int(sequence) for sequence in self.fields["rollouts"] if sequence >= 0]
        self.handed_on.append((named, bool(self.fields["last"]), bool(self.fields["stale"])))

    def leave(self) -> None:
        pass


class Updater:
    """In place of an updater: it only keeps which rows it is given."""

    def __init__(self, *_: object) -> None:
        self.rows: list[list[int]] = []

    def load(self, state: Arrays) -> None:
        pass

    def state(self) -> Arrays:
        return {}

    def begin(self, slots: list[int], progress: float) -> None:
        self.rows.append(slots)

    def minibatches(self, indices: np.ndarray, weights: np.ndarray) -> None:
        self.rows.append(sorted(indices[weights > 0.0].tolist()))


class Ports:
    """What the node is given."""

    def __init__(self, rollouts: Rollouts | Stream, boards: Mapping[str, Board]) -> None:
        self._rollouts, self._boards = rollouts, boards

    def stream_reader(self, edge: str) -> Rollouts | Stream:
        return self._rollouts

    def board_reader(self, edge: str) -> Board:
        return self._boards[edge]

    def stopping(self) -> bool:
        return False

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def busy(self, what: str, limit_s: float) -> Iterator[None]:
        yield


def make_team(*_: object) -> Team:
    return Team()


def ran(
    rollouts: Mapping[int, int] | Stream,
    *,
    schedule: Schedule = WHOLE,
    lag: float = math.inf,
    policy: int = 0,
    begun: tuple[int, ...] = (-1, -1),
    settled: int = 0,
) -> tuple[list[tuple[list[int], bool, bool]], list[list[int]]]:
    """What a node hands on until it waits, and the rows that its updater was given.

    ``rollouts``: the stream, or sequence -> version of the policy that played the rollout.
    """
    config = A3CConfig()
    updater = UpdaterSettings("", config, spec(SPACES, config), SPACES, "cpu", 1, 0, learner=ME)
    settings = StreamFollowerSettings(
        f"{__name__}:Updater", updater, schedule, f"{__name__}:make_team", LEARNERS, ROLLOUTS, lag, 1.0
    )
    told = {"batch": [(-1, -1), begun], "batch_settled": [0, settled], "progress": 0.5}
    node = StreamFollowerNode(settings)
    seen = rollouts if isinstance(rollouts, Stream) else Rollouts(rollouts)
    node.open(Ports(seen, {"parameters": Board(0, **told), "policy": Board(policy)}))
    while node.ready():
        node.step()
    return node._team.handed_on, node._updater.rows


@pytest.mark.parametrize(
    ("sequences", "batches"),
    [
        # One rollout of each of its nodes, 2 and 3; the rest is the other learner's.
        ([2, 3, 0, 1], [[2, 3]]),
        # Node 3 is slow. Two rollouts of node 2 make a batch as well: 7 * 4 + 2 and 8 * 4 + 2.
        ([30, 34], [[30, 34]]),
        # The oldest first, and one that is missing.
        ([11, 7, 6], [[6, 7]]),
        # The other learner's alone.
        ([0, 1, 4, 5], []),
    ],
)
def test_a_batch_is_the_oldest_rollouts_of_its_own_environment_nodes(sequences, batches) -> None:
    handed_on, _ = ran(dict.fromkeys(sequences, 0))
    assert handed_on == [(batch, True, False) for batch in batches]


def test_each_minibatch_of_each_epoch_is_handed_on_and_the_last_one_ends_the_batch() -> None:
    """Two rollouts of 3 rows: 2 minibatches of 4 and 2 rows, in 2 epochs. Rows lie 4 apart, row 3 is no row."""
    handed_on, given = ran({2: 0, 3: 0}, schedule=Schedule(2, 4))
    assert handed_on == [([2, 3], last, False) for last in (False, False, False, True)]
    slots, *rows = given
    assert slots == [0, 1]
    assert [len(part) for part in rows] == [4, 2, 4, 2]
    assert sorted(rows[0] + rows[1]) == sorted(rows[2] + rows[3]) == [0, 1, 2, 4, 5, 6]


def test_epochs_end_once_the_policy_has_moved_too_far() -> None:
    """Divergences are 0 and 1 in the first epoch, 2 and 3 in the second: means of 0.5 and 2.5."""
    handed_on, _ = ran({2: 0, 3: 0}, schedule=Schedule(9, 4, target_kl=0.6))
    assert [last for _, last, _ in handed_on] == [False, False, False, True]


def test_a_new_life_goes_on_behind_the_gradients_that_are_settled() -> None:
    """3 of 4 gradients are settled. So the fourth is handed on, with the rows that the dead life would have used."""
    whole, rows = ran({2: 0, 3: 0}, schedule=Schedule(2, 4))
    rest, found = ran({2: 0, 3: 0}, schedule=Schedule(2, 4), begun=(2, 3), settled=3)
    assert rest == whole[3:]
    assert found[-1] == rows[-1]


def test_rollouts_that_are_too_old_are_named_and_have_no_gradient() -> None:
    handed_on, rows = ran({2: 1, 3: 7}, lag=5, policy=7)
    assert handed_on == [([2], True, True)]
    assert rows == []
    handed_on, _ = ran({2: 1, 3: 7, 6: 7}, lag=5, policy=7)
    assert handed_on == [([2], True, True), ([3, 6], True, False)]


@pytest.mark.parametrize("pushed_at", [1, 2, 3])
def test_the_oldest_come_first_whenever_they_are_pushed(pushed_at: int) -> None:
    """Node 2 pushes two rollouts before one of the reads. That of node 3 is there, in a slot behind theirs."""
    slot = (ArraySpec("valid", (STEPS + 1, 1), "bool"), ArraySpec("policy_version", (STEPS + 1, 1), "int64"))
    stream = Stream(Segment.create(Stream.required(slot, 3), "test").bytes, slot, 3)
    stream.arrays["valid"][...] = True
    # Sequences 2 and 6 are the first rollouts of node 2, which gets its slots a little later.
    claimed = [stream.claim(node, sequence) for node, sequence in ((2, 2), (2, 6), (3, 3))]
    assert claimed == [0, 1, 2]
    stream.push(2, 3)
    reads = 0

    def before() -> None:
        nonlocal reads
        reads += 1
        if reads == pushed_at:
            stream.push(0, 2)
            stream.push(1, 2)

    stream._words = Watched(stream._words, before)  # type: ignore[assignment]
    handed_on, _ = ran(stream)
    assert handed_on == [([2, 3], True, False)]
