import signal

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.memory.record import Record
from penstock.types import ArraySpec

SPECS = [ArraySpec("actor", (501,), "float32"), ArraySpec("consumed", (4,), "int64"), ArraySpec("update", (), "int64")]


@pytest.fixture
def record(segment) -> Record:
    return Record(segment(Record.required(SPECS)).bytes, SPECS)


def values(number: float) -> dict[str, np.ndarray]:
    return {spec.name: np.full(spec.shape, number, spec.dtype) for spec in SPECS}


def test_nothing_is_committed_at_first(record: Record) -> None:
    assert record.number() == -1
    assert record.current() is None
    assert record.copy() is None
    with pytest.raises(ValueError, match="commit without begin"):
        record.commit(0)


def test_a_commit_changes_all_arrays_at_once(record: Record) -> None:
    record.write(values(1), 1)
    filling = record.begin()
    for array in filling.values():
        array[...] = 2
    assert record.number() == 1
    assert all((array == 1).all() for array in record.current().arrays.values())
    record.commit(2)
    assert record.number() == 2
    assert all((array == 2).all() for array in record.current().arrays.values())
    assert record.current().arrays is not record.begin()


def test_a_copy_stays_as_it_was(record: Record) -> None:
    record.write(values(1), 1)
    copied = record.copy()
    for number in (2, 3, 4):
        record.write(values(number), number)
    assert copied.number == 1
    assert copied.arrays["actor"].tolist() == [1.0] * 501
    assert copied.arrays["update"] == 1


def test_a_copy_may_leave_out_arrays(record: Record) -> None:
    """A report needs some counts, and the networks beside them may be large."""
    record.write({**values(1), "consumed": np.arange(4)}, 7)
    copied = record.copy(("update", "consumed"))
    assert copied.number == 7
    assert {name: array.tolist() for name, array in copied.arrays.items()} == {"consumed": [0, 1, 2, 3], "update": 1}
    assert record.copy(()).arrays == {}
    for span in ((4, 8), (0, 12), (0, 1 << 40), ((1 << 64) - 64, 64)):
        with pytest.raises(PenstockError, match=r"a record of .* bytes has no"):
            record._record.copy(np.empty(8, np.uint8), [span])


def test_what_is_written_must_fit(record: Record) -> None:
    with pytest.raises(KeyError, match="update"):
        record.write({name: array for name, array in values(0).items() if name != "update"}, 0)
    with pytest.raises(TypeError, match="Cannot cast"):
        record.write(values(0) | {"actor": np.zeros(501)}, 0)
    assert record.number() == -1
    assert record.recover()  # begun, never committed
    record.write(values(1), 1)
    assert record.number() == 1


def test_a_learner_killed_between_begin_and_commit(segment, program) -> None:
    shared = segment(Record.required(SPECS))
    record = Record(shared.bytes, SPECS)
    record.write(values(1), 1)
    child = program(
        """
from penstock.memory.record import Record
from penstock.types import ArraySpec
specs = [ArraySpec("actor", (501,), "float32"), ArraySpec("consumed", (4,), "int64"), ArraySpec("update", (), "int64")]
record = Record(memory, specs)
record.begin()["actor"][:100] = -1
print(record.number(), flush=True)
input()
""",
        shared,
    )
    assert child.stdout.readline() == "1\n"
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert record.recover()
    assert record.number() == 1
    assert all((array == 1).all() for array in record.copy().arrays.values())
    record.write(values(2), 2)
    assert not record.recover()
    assert (record.current().arrays["actor"] == 2).all()
