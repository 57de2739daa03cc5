import signal

import numpy as np
import pytest

from penstock.errors import DamagedError
from penstock.memory.board import Board
from penstock.types import ArraySpec

SPECS = [
    ArraySpec("actor", (1001,), "float32"),
    ArraySpec("obs_mean", (3,), "float64"),
    ArraySpec("obs_count", (), "int64"),
]


def record(value: float) -> dict[str, np.ndarray]:
    return {spec.name: np.full(spec.shape, value, spec.dtype) for spec in SPECS}


@pytest.fixture
def board(segment) -> Board:
    return Board(segment(Board.required(SPECS)).bytes, SPECS)


def test_nothing_is_published_at_first(board: Board) -> None:
    into = record(-3)
    assert board.version() == -1
    assert board.read(into) == -1
    assert (into["actor"] == -3).all()


def test_the_latest_value_wins(board: Board) -> None:
    into = record(0)
    for version in range(7):
        board.publish(record(version + 0.0), version)
        assert board.version() == version
        assert board.read(into) == version
        assert all((array == version).all() for array in into.values())


def test_a_version_that_is_published_again_is_another_publication(board: Board) -> None:
    assert board.publication() == 0
    for number, version in enumerate([4, 4, 3], start=1):
        board.publish(record(number), version)
        assert (board.publication(), board.version()) == (number, version)


def test_a_part_can_be_read(board: Board) -> None:
    board.publish(record(5), 9)
    part = {"obs_count": np.zeros((), np.int64), "obs_mean": np.zeros(3)}
    assert board.read(part) == 9
    assert part["obs_count"] == 5
    assert part["obs_mean"].tolist() == [5, 5, 5]


def test_arrays_may_be_read_in_any_order_and_may_be_empty(segment) -> None:
    specs = [ArraySpec("none", (0, 3), "float32"), *SPECS[:2], ArraySpec("nothing", (0,), "int64"), SPECS[2]]
    board = Board(segment(Board.required(specs)).bytes, specs)
    board.publish({spec.name: np.full(spec.shape, 6, spec.dtype) for spec in specs}, 6)
    into = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
    for order in (list(into), list(reversed(into)), ["obs_mean", "none", "actor"]):
        assert board.read({name: into[name] for name in order}) == 6
        assert all((into[name] == 6).all() for name in order)
        into["actor"][...] = 0


def test_a_version_may_be_published_again(board: Board) -> None:
    board.publish(record(1), 4)
    board.publish(record(2), 4)
    into = record(0)
    assert board.read(into) == 4
    assert (into["actor"] == 2).all()


def test_strided_arrays_are_published_too(board: Board) -> None:
    arrays = record(0)
    arrays["actor"] = np.arange(2002, dtype=np.float32)[::2]
    board.publish(arrays, 0)
    into = record(0)
    board.read(into)
    assert into["actor"].tolist() == list(range(0, 2002, 2))


def test_arrays_must_fit_their_specs(board: Board) -> None:
    with pytest.raises(KeyError, match="obs_count"):
        board.publish({name: array for name, array in record(0).items() if name != "obs_count"}, 0)
    with pytest.raises(ValueError, match=r"actor is float32\[1001\], got float64\[1001\]"):
        board.publish(record(0) | {"actor": np.zeros(1001)}, 0)
    with pytest.raises(ValueError, match=r"obs_mean is float64\[3\], got float64\[4\]"):
        board.read({"obs_mean": np.zeros(4)})
    with pytest.raises(KeyError, match="critic"):
        board.read({"critic": np.zeros(4)})
    assert board.version() == -1


def test_memory_that_is_not_writable_will_do_for_reading(segment) -> None:
    memory = segment(Board.required(SPECS)).bytes
    writer = Board(memory, SPECS)
    locked = memory[:]
    locked.flags.writeable = False
    reader = Board(locked, SPECS)
    writer.publish(record(2), 2)
    assert reader.version() == 2
    assert reader.read(record(0)) == 2
    with pytest.raises(ValueError, match="for reading only"):
        reader.publish(record(3), 3)


def test_a_word_that_somebody_else_wrote_is_named_by_board_and_version(segment) -> None:
    memory = segment(Board.required(SPECS)).bytes
    board = Board(memory, SPECS, "board policy")
    for version in range(4, 9):
        board.publish(record(version + 0.5), version)
    floats = memory.view(np.float32)
    current = np.flatnonzero(floats == 8.5)
    assert current.size == SPECS[0].size
    into = record(0)
    says = (
        "^board policy, version 8: it does not hold what was published, so something else wrote into its shared memory$"
    )
    for place in current[[0, 500, -1]]:
        floats[place] = -8.5
        with pytest.raises(DamagedError, match=says):
            board.read(into)
        with pytest.raises(DamagedError, match=says):
            board.read({"obs_count": np.zeros((), np.int64)})  # what it did not ask for is looked at all the same
        assert board.version() == 8
        floats[place] = 8.5
        assert board.read(into) == 8
    floats[current[0]] = 0
    board.publish(record(9), 9)
    assert board.read(into) == 9
    assert all((array == 9).all() for array in into.values())


def test_a_number_that_no_writer_stored_keeps_nobody_waiting(segment) -> None:
    memory = segment(Board.required(SPECS)).bytes
    board = Board(memory, SPECS)
    board.publish(record(1), 0)
    memory.view(np.uint64)[0] += 1  # the number of the latest publication
    with pytest.raises(DamagedError, match="a board, version 0: it does not hold what was published"):
        board.read(record(0))
    with pytest.raises(DamagedError, match="a board"):
        board.version()


def test_a_writer_killed_in_the_middle_disturbs_nobody(segment, program) -> None:
    shared = segment(Board.required(SPECS))
    board = Board(shared.bytes, SPECS)
    into = record(0)
    last = -1
    for life in range(3):
        child = program(
            """
import numpy as np
from penstock.memory.board import Board
from penstock.types import ArraySpec
shapes = {"actor": ((1001,), "float32"), "obs_mean": ((3,), "float64"), "obs_count": ((), "int64")}
specs = [ArraySpec(name, *shape) for name, shape in shapes.items()]
board = Board(memory, specs)
version = board.version() + 1
print("publishing", flush=True)
while True:
    board.publish({spec.name: np.full(spec.shape, version, spec.dtype) for spec in specs}, version)
    version += 1
""",
            shared,
        )
        assert child.stdout.readline() == "publishing\n"
        reads = 0
        while reads < 3000 or last <= life:
            version = board.read(into)
            reads += 1
            assert version >= last
            assert version == -1 or all((array == version).all() for array in into.values())
            last = version
        child.kill()
        assert child.wait() == -signal.SIGKILL
        board.recover()
        assert board.version() >= last > life
