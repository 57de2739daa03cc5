import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.layout import aligned_zeros
from penstock.replay.sum_tree import SumTree


def make(capacity: int) -> SumTree:
    return SumTree(aligned_zeros(SumTree.required(capacity)), capacity)


def sampled(tree: SumTree, key: tuple[int, int], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, stamps, probabilities = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    tree.sample(key, rows, stamps, probabilities)
    return rows, stamps, probabilities


@pytest.mark.parametrize("capacity", [1, 2, 16, 17, 256, 257, 5000])
def test_the_sum_is_exact(capacity: int) -> None:
    tree = make(capacity)
    random = np.random.default_rng(capacity)
    priorities = random.integers(0, 1 << 20, capacity) / 2**10  # multiples of the tree's unit
    tree.set(0, 5, priorities)
    assert tree.total() == priorities.sum()
    for _ in range(20):
        rows = random.integers(0, capacity, 64)
        changed = random.integers(0, 1 << 20, 64) / 2**10
        assert tree.update(rows, np.full(64, 5), changed) == 64
        for row, priority in zip(rows, changed, strict=True):  # the last one of a row counts
            priorities[row] = priority
        assert tree.total() == priorities.sum()


def test_rows_are_sampled_by_priority() -> None:
    tree = make(100)
    priorities = np.zeros(100)
    priorities[[3, 20, 21, 99]] = 1, 2, 3, 4
    tree.set(0, 7, priorities)
    rows, stamps, probabilities = sampled(tree, (1, 2), 1000)
    # A thousand equal parts of the sum 10: 100 of them lie in row 3, 200 in row 20, ...
    assert dict(zip(*np.unique(rows, return_counts=True), strict=True)) == {3: 100, 20: 200, 21: 300, 99: 400}
    assert (stamps == 7).all()
    assert np.array_equal(probabilities, priorities[rows] / 10)


def test_samples_within_a_part_are_uniform() -> None:
    tree = make(64)
    tree.set(0, 0, np.ones(64))
    found = np.concatenate([sampled(tree, (9, number), 1)[0] for number in range(20_000)])
    counts = np.bincount(found, minlength=64)
    mean = 20_000 / 64
    assert abs(((counts - mean) ** 2 / mean).sum() - 63) < 5 * np.sqrt(2 * 63)


def test_the_same_key_samples_the_same() -> None:
    tree = make(1000)
    tree.set(0, 0, np.arange(1000.0))
    assert np.array_equal(sampled(tree, (3, 4), 64)[0], sampled(tree, (3, 4), 64)[0])
    assert not np.array_equal(sampled(tree, (3, 4), 64)[0], sampled(tree, (3, 5), 64)[0])


def test_a_priority_of_what_stood_there_before_is_dropped() -> None:
    tree = make(32)
    tree.set(0, 1, np.ones(32))
    tree.set(8, 2, np.full(4, 2.0))
    assert tree.update(np.array([7, 8, 9]), np.array([1, 1, 2]), np.array([5.0, 6.0, 7.0])) == 2
    assert tree.total() == 27 + 5 + 2 + 7 + 2 + 2
    # A leaf knows a stamp modulo 2^28.
    tree.set(0, (1 << 40) + 3, np.ones(1))
    assert tree.update(np.array([0]), np.array([(1 << 40) + 3]), np.array([4.0])) == 1
    assert tree.update(np.array([0]), np.array([(1 << 40) + 4]), np.array([9.0])) == 0


def test_the_range_of_priorities() -> None:
    tree = make(4)
    tree.set(0, 0, np.array([1e-9, 1e-6, 1e4, 1e9]))
    unit = 2.0**-22
    # The least above 0; 1e-6 is 4.19 units; what is too large becomes the largest.
    assert tree.total() == unit + 4 * unit + 1e4 + (16384 - unit)
    assert tree.max_priority() == 16384 - unit
    full = make(1 << 16)
    full.set(0, 0, np.full(1 << 16, 1e9))
    assert full.total() == (1 << 16) * (16384 - unit)


def test_the_largest_priority_stays() -> None:
    tree = make(16)
    assert tree.max_priority() == 0
    tree.set(0, 0, np.array([1.0, 3.0]))
    tree.update(np.array([1]), np.array([0]), np.array([0.5]))
    assert tree.max_priority() == 3


def test_the_largest_priority_is_taken_back() -> None:
    tree = make(8)
    tree.set(0, 0, np.full(8, 2.5))
    largest = tree.max_priority()
    tree.update(np.array([3]), np.array([0]), np.array([7.0]))
    tree.put_largest(largest)
    assert tree.max_priority() == 2.5
    assert tree.read(np.array([3])).tolist() == [7.0]


def test_what_does_not_fit_is_named() -> None:
    tree = make(16)
    with pytest.raises(ResourceError, match="every priority is 0"):
        sampled(tree, (0, 0), 1)
    with pytest.raises(IndexError, match="row 17 of 16"):
        tree.set(14, 0, np.ones(4))
    with pytest.raises(IndexError, match="row -1 of 16"):
        tree.update(np.array([-1]), np.array([0]), np.ones(1))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="is not a number from 0 on"):
            tree.set(0, 0, np.array([bad]))
    with pytest.raises(ValueError, match="must be as many"):
        tree.update(np.array([1, 2]), np.array([0]), np.ones(2))
    with pytest.raises(ValueError, match="at least one row, not 0"):
        make(0)
    with pytest.raises(ResourceError, match="a sum tree needs"):
        SumTree(aligned_zeros(64), 16)


def test_recovery_mends_all_sums() -> None:
    memory = aligned_zeros(SumTree.required(1000))
    tree = SumTree(memory, 1000)
    tree.set(0, 0, np.ones(1000))
    # As a death between a leaf and its ancestors leaves it: leaf 500 begins 64 + 8 * 500 bytes behind.
    memory[64 + 8 * 500 : 64 + 8 * 501].view(np.int64)[0] += 9 << 22
    assert tree.total() == 1000
    tree.recover()
    assert tree.total() == 1009
