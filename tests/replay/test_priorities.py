"""The first priorities of new rows."""

from collections.abc import Sequence

import numpy as np
import pytest

from penstock.memory.layout import aligned_zeros
from penstock.replay.priorities import FIRST, Ranking, enter, known_priorities
from penstock.replay.sum_tree import SumTree

ROWS = 8


def half_known(slot: dict, config: None) -> np.ndarray:
    """Row 0 has a priority of 9, row 1 none."""
    return np.array([[9.0], [np.nan]], np.float32)


@pytest.mark.parametrize(
    ("initial", "largest", "expected"),
    [
        (None, 0.0, [FIRST, FIRST, 0.0]),
        (None, 5.0, [5.0, 5.0, 0.0]),
        (f"{__name__}:half_known", 0.0, [3.0, FIRST, 0.0]),
        (f"{__name__}:half_known", 5.0, [3.0, 5.0, 0.0]),
    ],
)
def test_a_row_of_which_nothing_is_known_gets_the_largest_priority_so_far(
    initial: str | None, largest: float, expected: Sequence[float]
) -> None:
    """Two rows and the bootstrap row, behind two others. Those of the tree are already raised to alpha, 0.5."""
    tree = SumTree(aligned_zeros(SumTree.required(ROWS)), ROWS)
    tree.set(0, 1, np.array([largest, largest / 2]))
    slot = {"valid": np.ones((3, 1), bool)}
    enter(tree, Ranking(0.5, initial, None), slot, 1, 2)
    assert tree.read(np.arange(3, 6)).tolist() == expected


def test_what_is_known_may_be_found_where_the_whole_slot_is() -> None:
    """On another machine, which does not know the largest priority so far. The root of 9 is 3."""
    ranking = Ranking(0.5, f"{__name__}:half_known", None)
    known = known_priorities(ranking, {})
    assert known.dtype == np.float32
    assert known.tolist()[0] == [3.0]
    tree = SumTree(aligned_zeros(SumTree.required(ROWS)), ROWS)
    tree.set(0, 1, np.array([5.0]))
    elsewhere = Ranking(0.5, "no_such_module:function", None)
    enter(tree, elsewhere, {"valid": np.ones((3, 1), bool)}, 1, 2, known=known)
    assert tree.read(np.arange(3, 6)).tolist() == [3.0, 5.0, 0.0]
    assert np.isnan(known_priorities(Ranking(0.5, None, None), {}))
