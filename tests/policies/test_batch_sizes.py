"""The size of the batch that holds so many rows."""

import pytest

from penstock.policies.batch_sizes import BatchSizes


@pytest.mark.parametrize(
    ("sizes", "padded"),
    [
        ("none", {0: 0, 1: 1, 3: 3, 100: 100}),
        ("powers", {0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 33: 64, 64: 64}),
        # Up to 20 the next size, then multiples of 20.
        ((20, 8), {0: 0, 1: 8, 8: 8, 9: 20, 20: 20, 21: 40, 40: 40, 41: 60}),
        ((1,), {1: 1, 7: 7}),
    ],
)
def test_a_batch_has_one_of_the_sizes(sizes, padded: dict[int, int]) -> None:
    assert {rows: BatchSizes(sizes).padded(rows) for rows in padded} == padded
