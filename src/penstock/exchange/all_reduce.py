"""Learners that step together: each gradient is the mean over all of them, so their states are equal to the bit.

K learners of B / K rows each do what one does with B, to float tolerance. A learner that dies is waited for no more;
its next life goes on from the state of the others, at the beginning of a gradient step. Knows no algorithm.
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
"""How long a learner waits for others before it gives a sign of life."""
KEEPER = 0
"""The learner that commits what all have learned. Where all died, the run goes on from its commit."""


def build(ports: Ports, settings: UpdaterSettings, learners: int) -> "AllReduce":
    """A node's part in rounds ``gradients``."""
    del learners
    sign = ports.sign()

    def alive() -> bool:
        sign[0] += 1
        return ports.stopping()

    return AllReduce(ports.rounds("gradients"), me=settings.learner, alive=alive)


class AllReduce:
    """One learner's end.

    Args:
        rounds: where they meet.
        me: which of the learners this is.
        alive: called while it waits; true once the run is to end.
    """

    def __init__(self, rounds: Rounds, *, me: int, alive: Callable[[], bool]) -> None:
        self._rounds = rounds
        self._me = me
        self._alive = alive
        self._mean: Arrays = {}

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Become one of the learners.

        Args:
            state: what this one would begin with.

        Returns:
            What it begins with: ``state``, or that of the others. ``None``: the run is to end.
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
        """A gradient step is wanted: who waits is let in with this learner's state. False while the keeper is away.

        For the keeper knows how many steps are due. A step that another learner has begun is taken nevertheless.
        """
        if self._rounds.asked():
            self._rounds.admit(updater.state())
        return KEEPER in self._rounds.members() or self._rounds.begun()

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The mean over all learners; as `penstock.updates.contract.Exchange`."""
        self._rounds.arrive(list(gradients.values()), weight)
        while True:
            seen = self._rounds.word()
            if self._rounds.over():
                break
            self._alive()
            self._rounds.sleep(seen, NAP_S)
        mean = {name: self._room(f"{phase}.{name}", values) for name, values in gradients.items()}
        self._rounds.mean(list(mean.values()))
        return mean

    def end(self) -> None:
        """A gradient step has ended."""

    def leave(self) -> None:
        """The others go on without this learner."""
        self._rounds.remove()

    def _room(self, name: str, values: Array) -> Array:
        if name not in self._mean:
            self._mean[name] = np.empty_like(values)
        return self._mean[name]
