"""What priority rows get before anybody has learned from them, and how priorities are written: raised to alpha.

Holds no priorities: those stand in the sum tree.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.memory.table import Table
from penstock.registry import load
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays

__all__ = ["Ranking", "enter", "tree_of"]

FIRST = 1.0
"""The priority of rows that were written before any priority was known."""


@dataclass(frozen=True)
class Ranking:
    """How the rows of a table are ranked, as plain data."""

    alpha: float
    initial: str | None
    """``module:function``: ``(slot, config) -> priorities [T, lanes]``; ``None``: the largest priority so far."""
    config: Any
    """The algorithm's."""


def tree_of(table: Table, ranks: Array) -> SumTree:
    """The tree in the bytes beside a table: a leaf for each flat row."""
    return SumTree(ranks, table.arrays["valid"].size)


def enter(tree: SumTree, ranking: Ranking, slot: Arrays, index: int, sequence: int) -> None:
    """Give the rows of a slot that was just filled their first priorities; those that carry no transition get none."""
    valid = slot["valid"].copy()
    valid[-1] = False
    if ranking.initial is None:
        first = np.full(valid.shape, tree.max_priority() or FIRST)
    else:
        first = np.zeros(valid.shape)
        first[:-1] = np.power(load(ranking.initial)(slot, ranking.config), ranking.alpha)
    tree.set(index * valid.size, sequence, np.where(valid, first, 0.0).reshape(-1))
