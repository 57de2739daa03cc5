import numpy as np
import pytest

from penstock.errors import ResourceError
from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from tests.replay.reference import Reference, Row, words
from tests.replay.world import lane_steps, make_table, write

STEPS, LANES, WRITERS, SLOTS = 4, 2, 2, 5
HEIGHT = (STEPS + 1) * LANES
"""Flat rows of a slot."""


def prioritised(*, n_step: int = 1) -> tuple[Table, SumTree, Sampler]:
    table = make_table(STEPS, LANES, WRITERS, SLOTS, same_step=True)
    capacity = WRITERS * SLOTS * HEIGHT
    tree = SumTree(aligned_zeros(SumTree.required(capacity)), capacity)
    return table, tree, Sampler(table, LANES, ["obs"], n_step=n_step, gamma=0.9, stack={}, tree=tree)


def insert(table: Table, tree: SumTree, writer: int, sequence: int, priorities: np.ndarray) -> None:
    """One slot and the priorities ``[T, lanes]`` of its rows."""
    steps = [lane_steps(writer * LANES + lane, 100, 0, same_step=True) for lane in range(LANES)]
    write(table, writer, sequence, steps, np.full(LANES, sequence > 0), same_step=True)
    rows = np.zeros((STEPS + 1, LANES))
    rows[:STEPS] = priorities
    tree.set(table.index(writer, sequence) * HEIGHT, sequence, rows.ravel())


def arrays(m: int) -> dict[str, np.ndarray]:
    return {
        "index": np.zeros(m, np.int64),
        "stamp": np.zeros(m, np.int64),
        "importance": np.zeros(m, np.float32),
        "reward": np.zeros(m, np.float32),
    }


def test_rows_come_as_often_as_their_priority_says() -> None:
    table, tree, sampler = prioritised()
    insert(table, tree, 0, 0, np.arange(8.0).reshape(4, 2))
    insert(table, tree, 1, 0, np.full((4, 2), 9.0))
    out = arrays(1000)
    sampler.sample((1, 1), out, beta=0.5)
    counts = np.bincount(out["index"], minlength=WRITERS * SLOTS * HEIGHT)
    # The sum is 28 + 72 = 100: a thousand equal parts, ten for each unit.
    assert counts[:8].tolist() == [10 * priority for priority in range(8)]
    assert counts[SLOTS * HEIGHT : SLOTS * HEIGHT + 8].tolist() == [90] * 8
    # (N P)^-beta over the largest of the batch, which is the one of priority 1: (1 / p)^0.5.
    priority = np.concatenate([np.arange(8.0), np.full(8, 9.0)])[
        out["index"] % (SLOTS * HEIGHT) + 8 * (out["index"] >= 50)
    ]
    assert np.allclose(out["importance"], priority**-0.5, rtol=1e-6)


def test_without_beta_nothing_is_weighed() -> None:
    table, tree, sampler = prioritised()
    insert(table, tree, 0, 0, np.arange(8.0).reshape(4, 2))
    out = arrays(32)
    sampler.sample((1, 1), out)
    assert (out["importance"] == 1).all()


def test_a_batch_by_hand() -> None:
    table, tree, sampler = prioritised(n_step=2)
    insert(table, tree, 0, 0, np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
    insert(table, tree, 0, 1, np.zeros((4, 2)))
    out = arrays(4)
    key = (11, 22)
    sampler.sample(key, out)
    # Rows 0, 2 and 5 hold 1, 3 and 4 of 8. Position i samples from [2 i, 2 i + 2).
    unit = 2.0**-22
    for position in range(4):
        word = words(key, position, 0)
        point = 2 * position + (((word[0] + (word[1] << 32)) * round(2 / unit)) >> 64) * unit
        assert out["index"][position] == (0 if point < 1 else 2 if point < 4 else 5)
    reference = Reference(table, n_step=2, gamma=0.9)
    rewards = {row: reference.follow(Row(0, 0, row // 2, row % 2))["reward"] for row in (0, 2, 5)}
    assert out["reward"].tolist() == [np.float32(rewards[row]) for row in out["index"].tolist()]


def test_what_was_overwritten_is_not_sampled_by_its_old_priority() -> None:
    table, tree, sampler = prioritised()
    for sequence in range(SLOTS):
        insert(table, tree, 0, sequence, np.ones((4, 2)))
    # Its writer died before it gave them a priority: sequence 5 stands where 0 stood.
    steps = [lane_steps(lane, 100, 0, same_step=True) for lane in range(LANES)]
    write(table, 0, SLOTS, steps, np.ones(LANES, bool), same_step=True)
    out = arrays(2000)
    sampler.sample((0, 0), out)
    # Nor is slot 1, which comes next.
    assert set((out["index"] // HEIGHT).tolist()) == {2, 3, 4}


def test_a_row_without_its_successor_is_sampled_again() -> None:
    table, tree, sampler = prioritised(n_step=3)
    insert(table, tree, 0, 0, np.ones((4, 2)))
    out = arrays(500)
    sampler.sample((0, 0), out)
    reference = Reference(table, n_step=3, gamma=0.9)
    able = {row for row in range(8) if reference.follow(Row(0, 0, row // 2, row % 2)) is not None}
    assert set(out["index"].tolist()) == able


def test_rows_whose_priorities_are_rare_are_found_and_sampled_by_them() -> None:
    table, tree, sampler = prioritised(n_step=3)
    insert(table, tree, 0, 0, np.ones((4, 2)))
    reference = Reference(table, n_step=3, gamma=0.9)
    able = np.array([reference.follow(Row(0, 0, row // 2, row % 2)) is not None for row in range(8)])
    first, second = np.flatnonzero(able)[:2]
    assert not able.all()
    # Rows that cannot be sampled yet have a million times the priority of the others.
    priorities = np.where(able, 0.0, 10_000.0)
    priorities[[first, second]] = 2.0**-10, 3 * 2.0**-10
    tree.set(0, 0, priorities)
    out = arrays(8000)
    sampler.sample((0, 0), out, beta=0.5)
    counts = np.bincount(out["index"], minlength=8)
    assert set(np.flatnonzero(counts)) == {first, second}
    assert 0.23 < counts[first] / 8000 < 0.27
    assert np.allclose(out["importance"], np.where(out["index"] == first, 1.0, 3.0**-0.5))


def test_updates_reach_the_samples() -> None:
    table, tree, sampler = prioritised()
    insert(table, tree, 0, 0, np.ones((4, 2)))
    out = arrays(64)
    sampler.sample((0, 0), out)
    tree.update(out["index"], out["stamp"], np.where(out["index"] == 3, 1.0, 0.0))
    sampler.sample((0, 1), out)
    assert (out["index"] == 3).all()


def test_no_priority_at_all_is_said() -> None:
    table, tree, sampler = prioritised()
    insert(table, tree, 0, 0, np.zeros((4, 2)))
    with pytest.raises(ResourceError, match="every priority is 0"):
        sampler.sample((0, 0), arrays(4))
    tree.set(8, 0, np.ones(2))  # the bootstrap row alone
    with pytest.raises(ResourceError, match="the priority of every row with its successors written is 0"):
        sampler.sample((0, 0), arrays(4))


def test_a_tree_that_is_too_small_is_named() -> None:
    table = make_table(STEPS, LANES, WRITERS, SLOTS, same_step=True)
    tree = SumTree(aligned_zeros(SumTree.required(99)), 99)
    with pytest.raises(ValueError, match="the tree has 99 leaves, the table 100 rows"):
        Sampler(table, LANES, ["obs"], n_step=1, gamma=0.9, stack={}, tree=tree)
