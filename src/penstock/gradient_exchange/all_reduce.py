"""Learners that step together: all apply the mean of their gradients, so their states are equal to the bit.

K learners with B / K rows each take the same step as one learner with B rows, to float tolerance. If a learner dies,
the others do not wait for it. Its next life joins at the beginning of a gradient step, with the state of the others.
Knows no algorithm.
"""

from collections.abc import Callable, Mapping

import numpy as np

from penstock.gradient_exchange.feedback import ErrorFeedback
from penstock.gradient_exchange.meeting import KEEPER, NAP_S, Meeting, signing
from penstock.nodes.contract import Ports
from penstock.nodes.ports import RoundsPort
from penstock.registry import compression_of
from penstock.types import Array, Arrays
from penstock.updates.contract import ReplayUpdater, Stateful
from penstock.updates.settings import UpdaterSettings

__all__ = ["AllReduce", "build"]


def build(ports: Ports, settings: UpdaterSettings, learners: int) -> "AllReduce":
    """A node's end of the rounds ``gradients``."""
    del learners
    compression = compression_of(settings.compress)
    compressed = None if compression is None else ErrorFeedback(compression)
    return AllReduce(ports.rounds("gradients"), me=settings.learner, alive=signing(ports), compressed=compressed)


class AllReduce(Meeting):
    """One learner's end.

    Args:
        rounds: the rounds of all learners.
        me: index of this learner.
        alive: called while the learner waits. True once the run is to end.
        compressed: encodes gradients; ``None``: they are sent as they are.
    """

    def __init__(
        self, rounds: RoundsPort, *, me: int, alive: Callable[[], bool], compressed: ErrorFeedback | None = None
    ) -> None:
        super().__init__(rounds, me=me, alive=alive)
        self._compressed = compressed
        self._factor = 1.0

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Become one of the learners.

        Args:
            state: this learner's own state.

        Returns:
            The state to begin with: ``state``, or the state of the others. ``None``: the run is to end.
        """
        while True:
            seen = self._rounds.word()
            if (found := self.enter(state)) is not None:
                return found
            if self._alive():
                return None
            self._rounds.sleep(seen, NAP_S)

    def begin(self, updater: ReplayUpdater) -> bool:
        """Ask to begin a gradient step. Learners that wait to join start from this learner's state.

        False while the keeper is not a member, because only the keeper knows how many steps are due. True nevertheless
        if another learner has begun the step.
        """
        if self._rounds.newcomer_waits():
            self._rounds.admit(updater.state())
        return KEEPER in self._rounds.members() or self._rounds.round_has_begun()

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The mean of the gradients over all learners. See `penstock.updates.team.Exchange`."""
        weight *= self._factor
        if self._compressed is None:
            self._sent += sum(values.nbytes for values in gradients.values())
            return self._mean_of(phase, gradients, weight)
        sent = self._compressed.encode(phase, gradients, weight)
        self._sent += sent.nbytes
        self._meet([sent], weight)
        brought = self._received(self._rounds.took_part(), sent.nbytes)
        total = sum(one for one, _ in brought)
        mean = {name: self._buffer(f"{phase}.{name}", values) for name, values in gradients.items()}
        part = {name: np.empty_like(values) for name, values in gradients.items()}
        for values in mean.values():
            values.fill(0.0)
        # In the order of the members, so that all get the same bits.
        for one, payload in brought:
            self._compressed.decode(payload, part)
            share = np.float32(one / total if total else 0.0)
            for name, values in mean.items():
                np.add(values, share * part[name], out=values)
        return mean

    def weigh(self, factor: float) -> None:
        """Let this learner's gradients count by this factor from now on. See `penstock.updates.team.ShardTeam`."""
        self._factor = factor

    def gather(self, values: Array) -> list[Array]:
        """What each learner brings, in order: float64 ``[n]``. See `penstock.updates.team.ShardTeam`."""
        self._meet([values.view(np.uint8)], 1.0)
        brought = self._received(self._rounds.took_part(), values.nbytes)
        return [payload.view(np.float64) for _, payload in brought]

    def end(self) -> None:
        """Nothing to do when a gradient step has ended."""

    def leave(self) -> None:
        """Leave the rounds. What an encoding has lost before is not sent any more."""
        super().leave()
        if self._compressed is not None:
            self._compressed.forget()

    def settle(self, updater: Stateful) -> None:
        """Wait until all have come to the end of a batch or turn. Their states are equal already."""
        del updater
        self.mean({}, 1.0)
