"""A learner's place in the rounds of all learners: it joins, meets the others, and leaves. Decides on no gradient."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.memory.rounds import Joined
from penstock.nodes.contract import Ports
from penstock.nodes.ports import RoundsPort
from penstock.types import Array, Arrays

__all__ = ["KEEPER", "NAP_S", "Meeting", "signing"]

NAP_S = 0.05
"""A learner that waits for others gives a sign of life this often."""
KEEPER = 0
"""Index of the learner that commits the common state. If all learners die, the run goes on from its commit."""


def signing(ports: Ports) -> Callable[[], bool]:
    """Gives a sign of life of a node that waits. True once the run is to end."""
    sign = ports.sign()

    def alive() -> bool:
        sign[0] += 1
        return ports.stopping()

    return alive


class Meeting:
    """One learner's place.

    Args:
        rounds: the rounds of all learners.
        me: index of this learner.
        alive: called while the learner waits. True once the run is to end.
    """

    def __init__(self, rounds: RoundsPort, *, me: int, alive: Callable[[], bool]) -> None:
        self._rounds = rounds
        self._me = me
        self._alive = alive
        self._means: Arrays = {}
        self._sent = 0

    def enter(self, state: Mapping[str, Array]) -> Arrays | None:
        """Try to become one of the learners. See `penstock.updates.team.Members`."""
        match self._rounds.join(anew=self._me == KEEPER):
            case Joined.FOUNDED:
                return dict(state)
            case Joined.ADMITTED:
                told = {name: np.empty_like(values) for name, values in state.items()}
                self._rounds.read_state(told)
                return told
        return None

    def admit(self, state: Mapping[str, Array]) -> None:
        """Let the learners that wait to join begin with this state."""
        if self._rounds.newcomer_waits():
            self._rounds.admit(state)

    def lost(self) -> bool:
        """True once the keeper has gone, after the first round."""
        return self._rounds.first_round_is_over() and KEEPER not in self._rounds.members()

    def meeting(self) -> int:
        """The number of this meeting. See `penstock.nodes.ports.RoundsPort.meeting`."""
        return self._rounds.meeting()

    def mean(self, arrays: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The exact mean of a few numbers over all learners. See `penstock.updates.team.Exchange`."""
        return self._mean_of("mean", arrays, weight)

    def sent(self) -> int:
        """Bytes of gradients that this learner has sent since the last call."""
        sent, self._sent = self._sent, 0
        return sent

    def _mean_of(self, phase: str, arrays: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        self._meet(list(arrays.values()), weight)
        mean = {name: self._buffer(f"{phase}.{name}", values) for name, values in arrays.items()}
        self._rounds.mean(list(mean.values()))
        return mean

    def _meet(self, payload: list[Array], weight: float, to: Sequence[int] | None = None) -> None:
        """Send these arrays to some members, or to all, and wait until the round is over."""
        self._rounds.send(payload, weight, to)
        while True:
            seen = self._rounds.word()
            if self._rounds.over():
                return
            self._alive()
            self._rounds.sleep(seen, NAP_S)

    def _received(self, sources: Sequence[int], nbytes: int) -> list[tuple[float, Array]]:
        """The weight and the first bytes, uint8 ``[nbytes]``, of each of these members in the last round."""
        return [self._rounds.receive(source, nbytes) for source in sources]

    def leave(self) -> None:
        """Leave the rounds. The others go on without this learner."""
        self._rounds.remove()

    def _buffer(self, name: str, values: Array) -> Array:
        if name not in self._means:
            self._means[name] = np.empty_like(values)
        return self._means[name]
