"""How much one learner's part of a minibatch counts, where each learner samples from its own shard of a table.

K learners sample B / K rows each, learner k by the priorities ``p`` of its own shard, whose sum is ``S_k``. A table
that is not sharded would sample row i with probability ``P_i = p_i / S``, where ``S`` is the sum over all shards, and
weigh it by ``(N P_i)^-beta`` (Schaul et al. 2016, https://arxiv.org/abs/1511.05952). Over shards that is

    sum_i P_i (N P_i)^-beta g_i  =  sum_k  S_k / S  *  E_k[(N P_i)^-beta g_i]

where ``E_k`` is the expectation over the rows that learner k samples. Its rows are weighed by ``(p_min / p_i)^beta``,
with the smallest priority in its part. So the mean of its part has to count ``S_k p_min^-beta``. The mean over all
learners divides by the sum of these factors; it takes the place of the largest weight in a minibatch.

Rows that are not ranked have priority 1: a learner counts as many as its shard has rows. As for a table that is not
sharded, rows that cannot be sampled at the moment are part of the sums.
"""

from collections.abc import Sequence

from penstock.memory.table import Table
from penstock.replay.sampler import RowSampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays

__all__ = ["ShardSampler", "factor"]


class ShardSampler:
    """A `RowSampler` of one shard. It says how much each minibatch counts.

    Args:
        sampler: of the shard.
        table: the shard.
        tree: the priorities of its rows; ``None``: all are equally likely.
    """

    def __init__(self, sampler: RowSampler, table: Table, tree: SumTree | None) -> None:
        self._sampler = sampler
        self._table = table
        self._tree = tree
        self._factors: dict[tuple[int, int], float] = {}

    def sample(self, key: tuple[int, int], out: Arrays, before: Sequence[int] | None = None, beta: float = 0.0) -> None:
        """As `penstock.replay.sampler.Sampler.sample`, with ``index`` among the names."""
        self._sampler.sample(key, out, before, beta)
        self._factors[key] = self._rows(before) if self._tree is None else factor(self._tree, out["index"], beta)

    def factor(self, key: tuple[int, int]) -> float:
        """How much the minibatch of this key counts. Ask once for each key.

        A minibatch without a row of the shard, with demonstrations only, counts as if its rows had priority 1.
        """
        found = self._factors.pop(key, None)
        if found is not None:
            return found
        return self._rows(None) if self._tree is None else self._tree.total()

    def _rows(self, before: Sequence[int] | None) -> float:
        """How many rows the shard has, up to those written ``before``."""
        ends = [self._table.written(writer) for writer in range(self._table.writers)] if before is None else before
        return float(sum(self._table.held(writer, end) for writer, end in enumerate(ends)))


def factor(tree: SumTree, sampled: Array, beta: float) -> float:
    """The factor by which the mean over these rows counts: ``S_k p_min^-beta``; 0 if all were overwritten.

    Args:
        tree: the priorities of the shard, by which the rows were sampled.
        sampled: flat rows of the shard, int64 ``[m]``. Those that were overwritten since do not count.
        beta: the exponent of importance weights.
    """
    priorities = tree.read(sampled)
    left = priorities[priorities > 0.0]
    return tree.total() * float(left.min()) ** -beta if len(left) else 0.0
