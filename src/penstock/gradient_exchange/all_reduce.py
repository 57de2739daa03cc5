"""Learners that step together: all apply the mean of their gradients, so their states are equal to the bit.

K learners with B / K rows each take the same step as one learner with B rows, to float tolerance. If a learner dies,
the others do not wait for it. Its next life joins at the beginning of a gradient step, with the state of the others.
Knows no algorithm.
"""

from collections.abc import Callable, Mapping

import numpy as np

from penstock.algorithm import UpdaterSettings
from penstock.memory.rounds import Joined, Rounds
from penstock.nodes.contract import Ports
from penstock.types import Array, Arrays
from penstock.updates.contract import ReplayUpdater

__all__ = ["AllReduce", "build"]

NAP_S = 0.05
"""A learner that waits for others gives a sign of life this often."""
KEEPER = 0
"""Index of the learner that commits the common state. If all learners die, the run goes on from its commit."""


def build(ports: Ports, settings: UpdaterSettings, learners: int) -> "AllReduce":
    """A node's end of the rounds ``gradients``."""
    del learners
    sign = ports.sign()

    def alive() -> bool:
        sign[0] += 1
        return ports.stopping()

    return AllReduce(ports.rounds("gradients"), me=settings.learner, alive=alive)


class AllReduce:
    """One learner's end.

    Args:
        rounds: the rounds of all learners.
        me: index of this learner.
        alive: called while the learner waits. True once the run is to end.
    """

    def __init__(self, rounds: Rounds, *, me: int, alive: Callable[[], bool]) -> None:
        self._rounds = rounds
        self._me = me
        self._alive = alive
        self._mean: Arrays = {}

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Become one of the learners.

        Args:
            state: this learner's own state.

        Returns:
            The state to begin with: ``state``, or the state of the others. ``None``: the run is to end.
        """
        while True:
            seen = self._rounds.word()
            match self._rounds.join(anew=self._me == KEEPER):
                case Joined.FOUNDED:
                    return dict(state)
                case Joined.ADMITTED:
                    told = {name: np.empty_like(values) for name, values in state.items()}
                    self._rounds.told(told)
                    return told
            if self._alive():
                return None
            self._rounds.sleep(seen, NAP_S)

    def begin(self, updater: ReplayUpdater) -> bool:
        """Ask to begin a gradient step. Learners that wait to join start from this learner's state.

        False while the keeper is not a member, because only the keeper knows how many steps are due. True nevertheless
        if another learner has begun the step.
        """
        if self._rounds.asked():
            self._rounds.admit(updater.state())
        return KEEPER in self._rounds.members() or self._rounds.begun()

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The mean of the gradients over all learners. See `penstock.updates.contract.Exchange`."""
        self._rounds.arrive(list(gradients.values()), weight)
        while True:
            seen = self._rounds.word()
            if self._rounds.over():
                break
            self._alive()
            self._rounds.sleep(seen, NAP_S)
        mean = {name: self._buffer(f"{phase}.{name}", values) for name, values in gradients.items()}
        self._rounds.mean(list(mean.values()))
        return mean

    def end(self) -> None:
        """Nothing to do when a gradient step has ended."""

    def leave(self) -> None:
        """Leave the rounds. The others go on without this learner."""
        self._rounds.remove()

    def _buffer(self, name: str, values: Array) -> Array:
        if name not in self._mean:
            self._mean[name] = np.empty_like(values)
        return self._mean[name]
