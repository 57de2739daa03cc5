import pytest

from penstock.memory.counters import Counters

LINES = ["env.0", "env.1", "learner"]
NAMES = ["collected", "learned", "heartbeat_ns"]


@pytest.fixture
def counters(segment) -> Counters:
    return Counters(segment(Counters.required(LINES, NAMES)).bytes, LINES, NAMES)


def test_cells_are_apart(counters: Counters) -> None:
    for line, name, value in ((line, n, 10 * i + j) for i, line in enumerate(LINES) for j, n in enumerate(NAMES)):
        counters.set(line, name, value)
    counters.add("env.1", "collected", 100)
    counters.add("env.1", "collected")
    assert [[counters.get(line, name) for name in NAMES] for line in LINES] == [[0, 1, 2], [111, 11, 12], [20, 21, 22]]


def test_a_cell_is_looked_up_once(counters: Counters) -> None:
    cell = counters.cell("learner", "heartbeat_ns")
    cell.set(2**62)
    cell.add(5)
    cell.add()
    assert cell.get() == counters.get("learner", "heartbeat_ns") == 2**62 + 6
    cell.set(-1)
    assert cell.get() == -1


def test_unknown_names_are_errors(counters: Counters) -> None:
    with pytest.raises(KeyError, match=r"env\.9"):
        counters.add("env.9", "collected")
    with pytest.raises(KeyError, match="lost"):
        counters.get("env.0", "lost")


def test_memory_that_is_not_writable_will_do_for_reading(segment) -> None:
    memory = segment(Counters.required(LINES, NAMES)).bytes
    Counters(memory, LINES, NAMES).add("learner", "learned", 3)
    memory.flags.writeable = False
    reader = Counters(memory, LINES, NAMES)
    assert reader.get("learner", "learned") == 3
    with pytest.raises(ValueError, match="for reading only"):
        reader.cell("learner", "learned")


def test_processes_count_in_one_grid(segment, program) -> None:
    shared = segment(Counters.required(LINES, NAMES))
    counters = Counters(shared.bytes, LINES, NAMES)
    source = f"""
from penstock.memory.counters import Counters
cell = Counters(memory, {LINES}, {NAMES}).cell("learner", "learned")
for _ in range(5000):
    cell.add(2)
"""
    children = [program(source, shared) for _ in range(2)]
    assert [child.wait() for child in children] == [0, 0]
    assert counters.get("learner", "learned") == 2 * 5000 * 2


def test_a_counter_can_be_written_as_memory(segment) -> None:
    names = [f"counter {index}" for index in range(9)]  # more than one cache line
    grid = Counters(segment(Counters.required(["a", "b"], names)).bytes, ["a", "b"], names)
    grid.view("b", "counter 8")[0] = 7
    assert grid.get("b", "counter 8") == 7
    assert sum(grid.get(line, name) for line in "ab" for name in names) == 7
