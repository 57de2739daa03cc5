"""The parameter server: each learner hands its gradients on, one step at a time, to the node that owns the parameters.

One slot of a stream holds all gradients of a step. A learner computes the gradients of all phases from the same
parameters, which it took when the step began. It does not apply them. Its pace says when it takes newer parameters:

- sync: it waits for newer ones after each gradient.
- async: it takes the latest ones before each gradient.
- lag: it takes the latest ones only if its own are more than some gradient steps behind.

Knows no algorithm.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.errors import PenstockError
from penstock.gradient_exchange.feedback import ErrorFeedback
from penstock.nodes.contract import Ports
from penstock.nodes.learner.gradient_slot import RANKED, Filling, Write, board_specs, plain
from penstock.nodes.ports import BoardReader, StreamWriter
from penstock.registry import compression_of
from penstock.types import Array, Arrays, ArraySpec
from penstock.updates.contract import Stateful
from penstock.updates.settings import UpdaterSettings

__all__ = ["GradientStream", "Learner", "build", "learner_of"]

NAP_S = 0.05
OWN_COUNT = "gradient_steps"
"""Array of the state that each learner counts for itself, so that it reaches every phase in turn. The run's own count
rises by the number of learners between two steps of one learner. By that count, a phase of every second step might
never be due.
"""


class Learner(NamedTuple):
    """One learner, and when it takes newer parameters."""

    number: int
    learners: int
    alive: Callable[[], bool]
    """Called while the learner waits. True once the run is to end."""
    pull_after: int = 0
    """Gradient steps that its parameters may be behind before it takes newer ones."""
    waits: bool = False
    """After each gradient it waits for newer parameters."""


def learner_of(ports: Ports, settings: UpdaterSettings, learners: int) -> Learner:
    """The learner with these settings. While it waits it gives signs of life."""
    sign = ports.sign()

    def alive() -> bool:
        sign[0] += 1
        return ports.stopping()

    return Learner(settings.learner, learners, alive, settings.pull_after, settings.waits)


def build(ports: Ports, settings: UpdaterSettings, learners: int) -> "GradientStream":
    """A node's end of stream ``gradients``, and its view of board ``parameters``."""
    compression = compression_of(settings.compress)
    return GradientStream(
        ports.stream_writer("gradients"),
        ports.board_reader("parameters"),
        settings.spec.shared(),
        learner_of(ports, settings, learners),
        plain if compression is None else ErrorFeedback(compression).write,
    )


class GradientStream:
    """One learner's end.

    Args:
        gradients: the stream. `penstock.nodes.learner.gradient_slot.slot_specs` describes its slots.
        parameters: the board, with at least the arrays of `penstock.nodes.learner.gradient_slot.board_specs`.
        shared: ``AlgorithmSpec.shared``. No learner needs the optimizer's arrays.
        learner: this learner.
        write: writes a gradient into a slot.
    """

    def __init__(
        self,
        gradients: StreamWriter,
        parameters: BoardReader,
        shared: Sequence[ArraySpec],
        learner: Learner,
        write: Write = plain,
    ) -> None:
        self._gradients = gradients
        self._parameters = parameters
        self._places = {spec.name: index for index, spec in enumerate(shared)}
        self._latest = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in board_specs(shared, learner.learners)}
        self._me = learner
        self._write = write
        self._sent = 0
        self._version = -1
        self._answered = -1
        """Version of the parameters of the last gradient."""
        self._step = 0
        self._slot: Arrays | None = None
        self._updater: Stateful | None = None
        self._index = -1
        self._filling: Filling | None = None
        self._metrics: dict[str, float] | None = None

    def watch(self, arrays: Arrays) -> None:
        """As `penstock.updates.team.StreamTeam.watch`."""
        self._latest |= arrays

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Wait for the first parameters and take them. See `penstock.updates.team.Team`."""
        while self._parameters.version() < 0:
            if self._me.alive():
                return None
            time.sleep(NAP_S)
        # Find the last step that an earlier life has handed on. It is in the stream, or the board counts it as settled.
        # 1. Read the stream.
        # 2. Read the board. It counts a step as settled before the step's slot is freed. So a slot that is freed
        #    between 1 and 2 is not missed.
        handed_on = max(self._mine(), default=0) // self._me.learners
        self._version = self._parameters.read(self._latest)
        self._step = max(handed_on, int(self._latest["settled"][self._me.number]))
        return {**state, **{name: self._latest[name] for name in self._places}}

    def in_flight(self) -> bool:
        """As `penstock.updates.team.StreamTeam.in_flight`."""
        return bool(self._mine())

    def _mine(self) -> list[int]:
        """The sequences of this learner's slots that are handed on and not freed."""
        count = self._me.learners
        return [sequence for sequence in self._gradients.written() if sequence % count == self._me.number]

    def begin(self, updater: Stateful) -> bool:
        """Ask to begin a gradient step. False while no slot is free, or while newer parameters are waited for."""
        self._updater = updater
        latest = self._parameters.version()
        if self._me.waits and latest == self._answered:
            return False
        if self._slot is None:
            sequence = (self._step + 1) * self._me.learners + self._me.number
            index = self._gradients.claim(sequence)
            if index is None:
                return False
            self._index, self._slot = index, self._gradients.slot(index)
            self._step += 1
            self._slot["learner"][...] = self._me.number
            self._slot["step"][...] = self._step
        self._filling = Filling(self._slot, self._places, self._write)
        if latest - self._version > self._me.pull_after:
            self._version = self._parameters.read(self._latest)
            updater.load({name: self._latest[name] for name in self._places if name != OWN_COUNT})
        self._slot["version"][...] = self._version
        return True

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """Write the gradients of a phase into the slot. See `penstock.updates.team.HandOn`."""
        if self._filling is None:
            raise PenstockError("gradients were computed outside of a step")
        self._filling.put(phase, gradients, weight)
        return gradients

    def found(self) -> dict[str, float]:
        """As `penstock.updates.team.StreamTeam.found`."""
        if self._metrics is None:
            if self._updater is None:
                raise PenstockError("no step has begun")
            self._metrics = self._updater.metrics()
        return self._metrics

    def tell(self, name: str, value: Array | float) -> None:
        """As `penstock.updates.team.StreamTeam.tell`."""
        if self._slot is None:
            raise PenstockError("no step has begun")
        self._slot[name][...] = value

    def ranked(self, rows: Array, stamps: Array, priorities: Array) -> None:
        """As `penstock.updates.team.RankTeam.ranked`. They go with the gradients, if slots have room for them.

        Slots have none where all learners rank the rows of one table in shared memory.
        """
        if self._slot is None:
            raise PenstockError("no step has begun")
        if RANKED.keys() <= self._slot.keys():
            for name, values in zip(RANKED, (rows, stamps, priorities), strict=True):
                self._slot[name][...] = values

    def end(self) -> None:
        """End the step: hand its gradients and metrics on."""
        if self._slot is None or self._filling is None:
            raise PenstockError("no step has begun")
        self._filling.tell(self.found())
        self._sent += int(self._slot["sent"])
        self._slot, self._filling, self._metrics = None, None, None
        self._answered = self._version
        self._gradients.push(self._index)

    def sent(self) -> int:
        """Bytes of gradients that this learner has handed on since the last call."""
        sent, self._sent = self._sent, 0
        return sent

    def leave(self) -> None:
        """Nothing to do: no learner waits for this one, and its half-filled slot is freed when its life ends."""
