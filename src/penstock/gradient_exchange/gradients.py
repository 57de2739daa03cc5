"""Learners that do not wait for each other: each hands its gradients on to the ParameterNode, one step at a time.

One slot of a stream holds all gradients of a step. A learner computes the gradients of all phases from the same
parameters: the latest published ones when the step begins. It does not apply them. Knows no algorithm.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.algorithm import UpdaterSettings
from penstock.errors import PenstockError
from penstock.nodes.contract import Ports
from penstock.nodes.learner.gradient_slot import Filling, board_specs
from penstock.nodes.ports import BoardReader, StreamWriter
from penstock.types import Array, Arrays, ArraySpec
from penstock.updates.contract import ReplayUpdater

__all__ = ["GradientStream", "build"]

NAP_S = 0.05
OWN_COUNT = "gradient_steps"
"""Array of the state that each learner counts for itself, so that it reaches every phase in turn. The run's own count
rises by the number of learners between two steps of one learner. By that count, a phase of every second step might
never be due.
"""


def build(ports: Ports, settings: UpdaterSettings, learners: int) -> "GradientStream":
    """A node's end of stream ``gradients``, and its view of board ``parameters``."""
    sign = ports.sign()

    def alive() -> bool:
        sign[0] += 1
        return ports.stopping()

    return GradientStream(
        ports.stream_writer("gradients"),
        ports.board_reader("parameters"),
        settings.spec.shared(),
        settings.learner,
        learners,
        alive,
        settings.pull_after,
    )


class GradientStream:
    """One learner's end.

    Args:
        gradients: the stream. `penstock.nodes.learner.gradient_slot.slot_specs` describes its slots.
        parameters: the board. `penstock.nodes.learner.gradient_slot.board_specs` describes its arrays.
        shared: ``AlgorithmSpec.shared``. No learner needs the optimizer's arrays.
        learner: index of this learner.
        learners: number of learners.
        alive: called while the learner waits. True once the run is to end.
        pull_after: gradient steps that its parameters may be behind before it takes newer ones.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        gradients: StreamWriter,
        parameters: BoardReader,
        shared: Sequence[ArraySpec],
        learner: int,
        learners: int,
        alive: Callable[[], bool],
        pull_after: int = 0,
    ) -> None:
        self._gradients = gradients
        self._parameters = parameters
        self._places = {spec.name: index for index, spec in enumerate(shared)}
        self._latest = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in board_specs(shared, learners)}
        self._learner = learner
        self._learners = learners
        self._alive = alive
        self._pull_after = pull_after
        self._sent = 0
        self._version = -1
        self._step = 0
        self._slot: Arrays | None = None
        self._updater: ReplayUpdater | None = None
        self._index = -1
        self._filling: Filling | None = None

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Wait for the first parameters and take them. See `penstock.updates.contract.Team`."""
        while self._parameters.version() < 0:
            if self._alive():
                return None
            time.sleep(NAP_S)
        # A step that an earlier life handed on is in the stream or settled.
        # 1. Read the stream.
        # 2. Read the board. A slot that was freed between 1 and 2 was published as settled before.
        mine = [sequence for sequence in self._gradients.written() if sequence % self._learners == self._learner]
        self._version = self._parameters.read(self._latest)
        handed_on = max(mine, default=0) // self._learners
        self._step = max(handed_on, int(self._latest["settled"][self._learner]))
        return {**state, **{name: self._latest[name] for name in self._places}}

    def begin(self, updater: ReplayUpdater) -> bool:
        """Ask to begin a gradient step from the latest parameters. False while no slot is free."""
        self._updater = updater
        if self._slot is None:
            sequence = (self._step + 1) * self._learners + self._learner
            index = self._gradients.claim(sequence)
            if index is None:
                return False
            self._index, self._slot = index, self._gradients.slot(index)
            self._step += 1
            self._slot["learner"][...] = self._learner
            self._slot["step"][...] = self._step
            self._slot["version"][...] = self._version
        self._filling = Filling(self._slot, self._places)
        if self._parameters.version() - self._version > self._pull_after:
            self._version = self._parameters.read(self._latest)
            self._slot["version"][...] = self._version
            updater.load({name: self._latest[name] for name in self._places if name != OWN_COUNT})
        return True

    def __call__(self, phase: str, gradients: Mapping[str, Array]) -> None:
        """Write the gradients of a phase into the slot. See `penstock.updates.contract.HandOn`."""
        if self._slot is None or self._filling is None:
            raise PenstockError("gradients were computed outside of a step")
        self._sent += self._filling.put(phase, gradients)

    def end(self) -> None:
        """End the step: hand its gradients and metrics on."""
        if self._slot is None or self._updater is None or self._filling is None:
            raise PenstockError("no step has begun")
        self._filling.tell(self._updater.metrics())
        self._slot = None
        self._gradients.push(self._index)

    def sent(self) -> int:
        """Bytes of gradients that this learner has handed on since the last call."""
        sent, self._sent = self._sent, 0
        return sent

    def leave(self) -> None:
        """Nothing to do: no learner waits for this one, and its half-filled slot is freed when its life ends."""
