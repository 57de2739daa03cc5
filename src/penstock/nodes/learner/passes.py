"""The minibatches of a batch, one after the other, of one learner's rows or of several. Takes no gradient step."""

from collections.abc import Sequence

import numpy as np

from penstock.algorithm import Schedule
from penstock.nodes.learner.batch import Minibatches, minibatches
from penstock.types import Array

__all__ = ["Passes"]


class Passes:
    """The minibatches of all epochs of one batch, numbered from 0.

    Args:
        shares: the units of each learner that has a share of the batch: flat rows, or row 0 of whole lanes.
        learners: indices of these learners, which key their permutations.
        schedule: epochs and minibatch size of all of them together.
        key: (seed, number of the batch).
    """

    def __init__(
        self, shares: Sequence[Array], learners: Sequence[int], schedule: Schedule, key: tuple[int, int]
    ) -> None:
        self._shares = shares
        self._learners = learners
        self._size = schedule.mini_batch_size // len(shares)
        self._key = key
        self.count = max(-(-len(share) // self._size) for share in shares)
        """Minibatches of an epoch."""
        self.total = schedule.epochs * self.count
        """Minibatches of all epochs."""
        self._epoch = -1
        self._permuted = Minibatches(np.empty((0, 0), np.int64), np.empty((0, 0), np.float32))

    def minibatch(self, number: int) -> Minibatches:
        """One minibatch, ``[1, m]``: the learners' shares of it, one after the other."""
        epoch, place = divmod(number, max(1, self.count))
        if epoch != self._epoch:
            seed, batch = self._key
            permuted = [
                minibatches(share, self._size, (seed, batch, epoch), learner=learner, count=self.count)
                for share, learner in zip(self._shares, self._learners, strict=True)
            ]
            self._epoch = epoch
            self._permuted = Minibatches(*(np.concatenate(parts, axis=1) for parts in zip(*permuted, strict=True)))
        part = slice(place, place + 1)
        return Minibatches(self._permuted.indices[part], self._permuted.weights[part])

    def ends_epoch(self, number: int) -> bool:
        """True for the last minibatch of an epoch."""
        return (number + 1) % self.count == 0
