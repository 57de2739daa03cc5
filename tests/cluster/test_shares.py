"""Environment processes go where cores are."""

import pytest

from penstock.cluster.shares import shares


@pytest.mark.parametrize(
    ("count", "cores", "expected"),
    [
        (4, [2, 2, 2], [2, 1, 1]),
        (3, [2, 2, 2], [1, 1, 1]),
        (1, [2, 2], [1, 0]),
        # 10 of 4 + 16 + 0 cores: exactly 2 and 8.
        (10, [4, 16, 0], [2, 8, 0]),
        # Exact shares 1.25 and 3.75: the larger remainder gets the process that is left.
        (5, [1, 3], [1, 4]),
        (3, [0, 0], [3, 0]),
        (2, [0, 8], [0, 2]),
    ],
)
def test_shares_are_proportional(count: int, cores: list[float], expected: list[int]) -> None:
    assert shares(count, cores) == expected
