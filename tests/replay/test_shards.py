"""Shards of a table: views of its rings, priorities in a tree each, and minibatches that count as in one table."""

import numpy as np
import pytest

from penstock.memory.layout import aligned_zeros
from penstock.memory.table import Table
from penstock.replay.sampler import Sampler
from penstock.replay.shards import ShardSampler
from penstock.replay.sum_tree import SumTrees
from tests.replay.world import lane_steps, make_table, write

STEPS, SHARDS, WRITERS, SLOTS = 4, 2, 4, 3
HEIGHT = STEPS + 1
"""Flat rows of a slot: each writer has one lane."""
PRIORITIES = np.array([[1, 2, 3, 4], [2, 2, 2, 4], [8, 4, 2, 6], [5, 5, 10, 0]], np.float64)
"""Of the rows in slot 0 of each writer. The first two writers are shard 0, with a sum of 20; shard 1 has 40."""


@pytest.fixture
def table() -> Table:
    made = make_table(STEPS, 1, WRITERS, SLOTS, same_step=True)
    for writer in range(WRITERS):
        write(made, writer, 0, [lane_steps(writer, 20, 0, same_step=True)], np.zeros(1, bool), same_step=True)
    return made


@pytest.fixture
def trees(table: Table) -> SumTrees:
    rows = table.arrays["valid"].size
    made = SumTrees(aligned_zeros(SumTrees.required(rows, SHARDS)), rows, SHARDS)
    for writer, priorities in enumerate(PRIORITIES):
        made.set(table.index(writer, 0) * HEIGHT, 0, np.append(priorities, 0.0))
    return made


def sampled(table: Table, trees: SumTrees | None, shard: int, m: int, beta: float) -> tuple[dict, float]:
    own, tree = table.shard(shard, SHARDS), None if trees is None else trees.shard(shard)
    sampler = ShardSampler(Sampler(own, 1, ["obs"], n_step=1, gamma=0.9, stack={}, tree=tree), own, tree)
    out = {"index": np.zeros(m, np.int64), "reward": np.zeros(m, np.float32), "importance": np.zeros(m, np.float32)}
    sampler.sample((3, shard), out, [1, 1], beta)
    return out, sampler.factor((3, shard))


def test_a_shard_is_a_view_of_its_writers_rings(table: Table) -> None:
    shard = table.shard(1, SHARDS)
    assert (shard.writers, [shard.written(writer) for writer in range(2)]) == (2, [1, 1])
    assert np.shares_memory(shard.arrays["reward"], table.arrays["reward"])
    assert np.array_equal(shard.slot(shard.index(1, 0))["reward"], table.slot(table.index(3, 0))["reward"])
    shard.claim(0, 1)
    shard.push(0, 1)
    assert [table.written(writer) for writer in range(WRITERS)] == [1, 1, 2, 1]
    with pytest.raises(ValueError, match="4 writers cannot be shared equally by 3"):
        table.shard(0, 3)


def test_rows_of_all_shards_are_numbered_one_after_the_other(trees: SumTrees) -> None:
    assert [trees.shard(number).total() for number in range(SHARDS)] == [20, 40]
    rows = np.arange(WRITERS) * SLOTS * HEIGHT
    assert trees.read(rows).tolist() == [1, 2, 8, 5]
    assert trees.largest().tolist() == [4, 10]
    trees.put_largest(np.array([7.0]))
    assert trees.largest().tolist() == [7, 7]


def test_rows_of_several_shards_get_new_priorities_at_once_unless_they_were_overwritten(trees: SumTrees) -> None:
    # Writer 2, step 0: 8 becomes 7. Writer 1, step 2: 2 becomes 9. The row of writer 3 has stamp 0: it is another one.
    rows, stamps = np.array([30, 17, 46]), np.array([0, 0, 3])
    assert trees.update(rows, stamps, np.array([7.0, 9.0, 11.0])) == 2
    assert trees.read(rows).tolist() == [7, 9, 5]
    assert [trees.shard(number).total() for number in range(SHARDS)] == [20 - 2 + 9, 40 - 8 + 7]
    for outside in (-1, WRITERS * SLOTS * HEIGHT):
        with pytest.raises(IndexError):
            trees.update(np.array([outside]), np.array([0]), np.array([1.0]))


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_mean_over_shards_is_that_of_one_table_with_all_rows(table: Table, trees: SumTrees, beta: float) -> None:
    # m is a multiple of both sums, so each row is sampled exactly m p_i / S_k times.
    m, weighed, factors = 400, [], []
    for shard in range(SHARDS):
        out, factor = sampled(table, trees, shard, m, beta)
        weighed.append(float(np.mean(out["importance"].astype(np.float64) * out["reward"])))
        factors.append(factor)
    found = np.dot(factors, weighed) / sum(factors)
    # One table: row i comes with probability p_i / 60, and counts (16 p_i / 60)^-beta.
    p, g = PRIORITIES.ravel(), table.arrays["reward"][:, :STEPS, 0][::SLOTS].astype(np.float64).ravel()
    p, g = p[p > 0], g[p > 0]
    whole = float(np.sum(p / 60 * (16 * p / 60) ** -beta * g))
    # The scale: the largest weight of each part, as often as its shard's rows come. Smallest priorities are 1 and 2.
    scale = 20 / 60 * (16 * 1 / 60) ** -beta + 40 / 60 * (16 * 2 / 60) ** -beta
    assert found == pytest.approx(whole / scale, rel=1e-6)
    assert factors == pytest.approx([20 * 1**-beta, 40 * 2**-beta])


def test_rows_that_are_not_ranked_count_by_their_number(table: Table) -> None:
    write(table, 0, 1, [lane_steps(0, 20, 0, same_step=True)], np.ones(1, bool), same_step=True)
    own = table.shard(0, SHARDS)
    sampler = ShardSampler(Sampler(own, 1, ["obs"], n_step=1, gamma=0.9, stack={}), own, None)
    sampler.sample((3, 0), {"index": np.zeros(8, np.int64)}, [2, 1])
    # Three slots, of as many rows each; the other shard has two.
    assert sampler.factor((3, 0)) == 3
    assert sampled(table, None, 1, 8, 0.0)[1] == 2
    # All rows of a minibatch may be demonstrations.
    assert sampler.factor((3, 1)) == 3


def test_a_minibatch_of_demonstrations_alone_counts_as_a_part_of_its_shard(table: Table, trees: SumTrees) -> None:
    sampler = ShardSampler(Sampler(table, 1, ["obs"], n_step=1, gamma=0.9, stack={}), table, trees.shard(1))
    assert sampler.factor((3, 0)) == 40
