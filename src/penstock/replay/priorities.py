"""Gives new rows their first priority, raised to the power alpha. The priorities themselves are in the sum tree."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.registry import load
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays

__all__ = ["Ranking", "enter", "known_priorities"]

FIRST = 1.0
"""The priority of rows that are written before any other priority is known."""


@dataclass(frozen=True)
class Ranking:
    """How the rows of a table are ranked, as plain data."""

    alpha: float
    initial: str | None
    """``module:function``: ``(slot, config) -> priorities [T, lanes]``, NaN: not known. ``None``: nothing is known."""
    config: Any
    """The algorithm's hyper-parameters."""
    sequences: bool = False
    """Only row 0 of each lane has a priority, which is that of the sequence that begins there."""


def known_priorities(ranking: Ranking, slot: Arrays) -> Array:
    """First priorities for the rows of a new slot, to the power alpha: ``[T, lanes]``, or one NaN. NaN: not known."""
    initial = np.nan if ranking.initial is None else load(ranking.initial)(slot, ranking.config)
    return np.asarray(np.power(initial, ranking.alpha))


def enter(
    tree: SumTree, ranking: Ranking, slot: Arrays, index: int, sequence: int, *, known: Array | None = None
) -> None:
    """Give the rows of a newly filled slot their first priorities. Rows that cannot be sampled get 0.

    A row without a known priority gets the largest priority so far.

    Args:
        tree: of the writer's shard.
        ranking: how to rank the rows.
        slot: the arrays of the slot.
        index: of the slot among those of the shard.
        sequence: of the slot.
        known: the `known_priorities` of the slot, if some of its fields are not here. ``None``: all fields are here,
            so compute them.
    """
    valid = slot["valid"].copy()
    valid[-1] = False
    if ranking.sequences:
        # A sequence may begin with a row that is not valid: the rows behind it are.
        valid[0], valid[1:] = True, False
    first = np.zeros(valid.shape)
    first[:-1] = known_priorities(ranking, slot) if known is None else known
    unknown = np.isnan(first)
    if unknown.any():
        first[unknown] = tree.max_priority() or FIRST
    tree.set(index * valid.size, sequence, np.where(valid, first, 0.0).reshape(-1))
