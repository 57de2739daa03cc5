import numpy as np
import pytest

from penstock.memory.action_log import Past, Position
from penstock.memory.snapshots import Snapshot
from penstock.saved_runs.pasts import past_specs, read_pasts, without_room, write_past
from penstock.types import Arrays, ArraySpec

ACTION = ArraySpec("action", (2,), "float32")


def slot(snapshot_bytes: int) -> Arrays:
    """A slot that holds what an earlier checkpoint has left in it."""
    return {spec.name: np.full(spec.shape, 9, spec.dtype) for spec in past_specs(3, ACTION, 5, snapshot_bytes)}


def past(count: int, base: Snapshot | None = None) -> Past:
    return Past(base, np.arange(2 * count, dtype=np.float32).reshape(count, 2))


BASE = Snapshot(Position(4, 100, 30, -(2**62)), -1.25, np.arange(7, dtype=np.uint8))


def test_what_restores_each_lane_is_read_as_it_was_written() -> None:
    into = slot(8)
    for lane, found in enumerate((past(3, BASE), None, past(2))):
        write_past(into, lane, found)
    arrays = without_room(into)
    assert arrays["actions"].shape == (5, 2)
    assert arrays["snapshots"].tolist() == list(range(7))
    first, second, third = read_pasts(arrays)
    assert first is not None
    assert first.base is not None
    assert first.base[:2] == BASE[:2]
    np.testing.assert_array_equal(first.base.content, BASE.content)
    np.testing.assert_array_equal(first.actions, past(3).actions)
    assert second is None
    assert third is not None
    assert third.base is None
    np.testing.assert_array_equal(third.actions, past(2).actions)


@pytest.mark.parametrize("snapshot_bytes", [0, 8])
def test_without_a_snapshot_the_arrays_are_those_of_before(snapshot_bytes: int) -> None:
    into = slot(snapshot_bytes)
    for lane in range(3):
        write_past(into, lane, past(1))
    arrays = without_room(into)
    assert sorted(arrays) == ["actions", "actions_count"]
    assert [found is not None and found.base is None for found in read_pasts(arrays)] == [True] * 3
