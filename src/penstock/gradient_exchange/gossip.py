"""Gossip: learners step down their own gradients, and take the mean of their neighbours' states after each batch.

    x_k <- (x_k-1 + x_k + x_k+1) / 3      over the ring of the learners that are there

Source: Lian et al. 2017 (D-PSGD), https://arxiv.org/abs/1705.09056; a batch here is one step there. Up to three
learners are all neighbours, and have the same state after each batch. More learners differ a little; the keeper's state
is committed and published. Knows no algorithm.
"""

from collections.abc import Mapping

import numpy as np

from penstock.gradient_exchange.meeting import Meeting, signing
from penstock.nodes.contract import Ports
from penstock.types import Array
from penstock.updates.contract import Updater
from penstock.updates.settings import UpdaterSettings

__all__ = ["Gossip", "build", "neighbours"]


def build(ports: Ports, settings: UpdaterSettings, learners: int) -> "Gossip":
    """A node's end of the rounds ``gradients``."""
    del learners
    return Gossip(ports.rounds("gradients"), me=settings.learner, alive=signing(ports))


class Gossip(Meeting):
    """One learner's end. Its arguments are those of `Meeting`."""

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """This learner's own gradients. See `penstock.updates.team.Exchange`.

        Zeros, if this learner has no row of the minibatch: then the given gradients come from padding.
        """
        del phase
        return gradients if weight else {name: np.zeros_like(values) for name, values in gradients.items()}

    def settle(self, updater: Updater) -> None:
        """Take the mean of the state over this learner and its neighbours, once all have come to the end of a batch."""
        # First a round of all learners: it tells each of them who is in the ring. States go to neighbours only.
        self.mean({}, 1.0)
        ring = self._rounds.took_part()
        near = neighbours(ring, ring.index(self._me))
        mine = {name: values for name, values in updater.state().items() if values.dtype == np.float32}
        nbytes = sum(values.nbytes for values in mine.values())
        self._meet(list(mine.values()), 1.0, near)
        self._sent += nbytes
        # In shared memory a neighbour may have died since all met. The next ring is closed without it.
        there = [one for one in self._rounds.took_part() if one in near]
        near_states = np.stack([payload.view(np.float32) for _, payload in self._received(there, nbytes)])
        mean: Array = near_states.mean(0, dtype=np.float64)
        mixed, first = {}, 0
        for name, values in mine.items():
            part = mean[first : first + values.size].astype(np.float32)
            mixed[name] = part.reshape(values.shape)
            first += values.size
        updater.load(mixed)


def neighbours(ring: list[int], place: int) -> list[int]:
    """The learners before and behind a place of a ring, with the one there, each once and in order."""
    count = len(ring)
    return sorted({ring[(place + step) % count] for step in (-1, 0, 1)})
