"""Learners that do not wait for each other: each hands its gradients on, a step at a time, to who owns the parameters.

All gradients of a step are one slot of a stream. A learner finds those of every phase from the same parameters, the
latest that were published when the step began, and steps by none of them. Knows no algorithm.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.algorithm import UpdaterSettings
from penstock.errors import PenstockError
from penstock.node import Ports
from penstock.ports import BoardReader, StreamWriter
from penstock.types import Array, Arrays, ArraySpec
from penstock.updater import ReplayUpdater

__all__ = ["GradientStream", "board_specs", "build", "gradients_in", "metrics_in", "slot_specs"]

NAP_S = 0.05
NAME_BYTES = 32
"""Of the name of a phase or of a metric, at most."""
METRICS = 16
"""Of a step, at most."""
OWN_COUNT = "gradient_steps"
"""Of the state, what each learner counts for itself, so that it comes to every phase in turn. The run's count rises by
as many as there are learners between two steps of one: by that, a phase of every second step may never be due.
"""


def board_specs(shared: Sequence[ArraySpec], learners: int) -> tuple[ArraySpec, ...]:
    """What is published: ``AlgorithmSpec.shared``, and of each learner the number of the last step that was settled."""
    return (*shared, ArraySpec("settled", (learners,), "int64"))


def slot_specs(shared: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """What is handed on: the gradients of one step, no larger than the float32 arrays of ``AlgorithmSpec.shared``.

    ``step`` counts this learner's, from 1; ``version`` is the count of gradient steps that its parameters had seen.
    """
    parts = 2 * len(shared)
    return (
        ArraySpec("values", (sum(spec.size for spec in shared if spec.dtype == "float32"),), "float32"),
        ArraySpec("phase", (parts, NAME_BYTES), "uint8"),
        ArraySpec("network", (parts,), "int64"),
        ArraySpec("parts", (), "int64"),
        ArraySpec("metric", (METRICS, NAME_BYTES), "uint8"),
        ArraySpec("metric_value", (METRICS,), "float64"),
        ArraySpec("learner", (), "int64"),
        ArraySpec("step", (), "int64"),
        ArraySpec("version", (), "int64"),
    )


def gradients_in(slot: Arrays, shared: Sequence[ArraySpec]) -> dict[str, Arrays]:
    """Phase -> network -> gradient, as views of a slot."""
    found: dict[str, Arrays] = {}
    first = 0
    for part in range(int(slot["parts"])):
        phase = _name(slot["phase"][part])
        network = shared[int(slot["network"][part])]
        found.setdefault(phase, {})[network.name] = slot["values"][first : first + network.size]
        first += network.size
    return found


def metrics_in(slot: Arrays) -> dict[str, float]:
    """What the learner's phases found of interest."""
    named = zip(slot["metric"], slot["metric_value"].tolist(), strict=True)
    return {_name(name): value for name, value in named if name[0]}


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
    )


class GradientStream:
    """One learner's end.

    Args:
        gradients: the stream, of slots as `slot_specs` says.
        parameters: the board, of arrays as `board_specs` says.
        shared: ``AlgorithmSpec.shared``; what is the optimizer's own, no learner needs.
        learner: which one this is.
        learners: how many there are.
        alive: called while it waits; true once the run is to end.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        gradients: StreamWriter,
        parameters: BoardReader,
        shared: Sequence[ArraySpec],
        learner: int,
        learners: int,
        alive: Callable[[], bool],
    ) -> None:
        self._gradients = gradients
        self._parameters = parameters
        self._places = {spec.name: index for index, spec in enumerate(shared)}
        self._latest = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in board_specs(shared, learners)}
        self._learner = learner
        self._learners = learners
        self._alive = alive
        self._version = -1
        self._step = 0
        self._slot: Arrays | None = None
        self._updater: ReplayUpdater | None = None
        self._index = -1
        self._filled = 0

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Wait for the first parameters and take them; as `penstock.updater.Team`."""
        while self._parameters.version() < 0:
            if self._alive():
                return None
            time.sleep(NAP_S)
        # What an earlier life handed on is in the stream or settled. In this order: a slot that is freed in between was
        # published as settled before.
        mine = [sequence for sequence in self._gradients.written() if sequence % self._learners == self._learner]
        self._version = self._parameters.read(self._latest)
        handed_on = max(mine, default=0) // self._learners
        self._step = max(handed_on, int(self._latest["settled"][self._learner]))
        return {**state, **{name: self._latest[name] for name in self._places}}

    def begin(self, updater: ReplayUpdater) -> bool:
        """A gradient step is wanted: it begins from the latest parameters. False while there is no slot for it."""
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
        self._slot["parts"][...] = 0
        self._filled = 0
        if self._parameters.version() != self._version:
            self._version = self._parameters.read(self._latest)
            self._slot["version"][...] = self._version
            updater.load({name: self._latest[name] for name in self._places if name != OWN_COUNT})
        return True

    def __call__(self, phase: str, gradients: Mapping[str, Array]) -> None:
        """Note the gradients of a phase; as `penstock.updater.HandOn`."""
        slot = self._slot
        if slot is None:
            raise PenstockError("gradients were found outside of a step")
        for network, values in gradients.items():
            part = int(slot["parts"])
            slot["phase"][part] = _bytes(phase)
            slot["network"][part] = self._places[network]
            slot["values"][self._filled : self._filled + values.size] = values
            self._filled += values.size
            slot["parts"][...] = part + 1

    def end(self) -> None:
        """The step has ended: hand its gradients on, and what was found of interest."""
        if self._slot is None or self._updater is None:
            raise PenstockError("no step has begun")
        found = self._updater.metrics()
        if len(found) > METRICS:
            raise PenstockError(
                f"a gradient step has {len(found)} metrics, {METRICS} can be handed on: {sorted(found)}"
            )
        names = self._slot["metric"]
        names[:] = 0
        for place, (name, value) in enumerate(found.items()):
            names[place], self._slot["metric_value"][place] = _bytes(name), value
        self._slot = None
        self._gradients.push(self._index)

    def leave(self) -> None:
        """Nobody waits for this learner; a slot that it had begun to fill is freed when its life ends."""


def _bytes(name: str) -> Array:
    content = name.encode()
    if len(content) > NAME_BYTES:
        raise PenstockError(f"{name}: the name of a phase or a metric has at most {NAME_BYTES} bytes")
    return np.frombuffer(content.ljust(NAME_BYTES, b"\0"), np.uint8)


def _name(held: Array) -> str:
    return str(held.tobytes().rstrip(b"\0").decode())
