"""Lets native code of another package sample minibatches of a table and rank their rows, without a call of Python."""

from collections.abc import Sequence

from penstock.replay import _native
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Arrays

__all__ = ["TableMinibatches"]


class TableMinibatches:
    """Minibatches of one table in fixed arrays. For one thread at a time.

    Args:
        sampler: samples the rows.
        out: the arrays of a minibatch, as for `Sampler.sample`; with a tree ``index`` and ``stamp`` are among them.
        tree: the priorities of the rows; ``None``: they have none.
        alpha: power of the priorities that are given.
    """

    def __init__(self, sampler: Sampler, out: Arrays, tree: SumTree | None, alpha: float) -> None:
        self._native = _native.Minibatches(sampler.native, out, None if tree is None else tree.native, alpha)

    def begin(self, before: Sequence[int]) -> None:
        """Sample only slots below these sequences, one for each writer. Forget earlier changes of priorities."""
        self._native.before(list(before))
        self._native.forget()

    def take_back(self) -> None:
        """Undo all changes of priorities since `begin`. No other process may change priorities meanwhile."""
        self._native.take_back()

    def capsule(self) -> object:
        """What native code takes. See ``native/kernels/include/penstock/kernels/minibatches.hpp``."""
        return self._native.capsule()
