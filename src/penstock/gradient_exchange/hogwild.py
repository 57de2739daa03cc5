"""Hogwild: each learner adds its own steps to one shared vector, without locks.

    x <- x + (step_k(x') - x')      x' is x as learner k has read it; others may have added their steps meanwhile

Source: Recht et al. 2011, https://arxiv.org/abs/1106.5730; with one optimizer for all, Mnih et al. 2016, section 4.

- If two learners add to one number at the same moment, one addition may be lost. A learner that dies may leave half of
  its step. So a step does not count exactly once. All other rules keep that promise.
- The optimizer's arrays are overwritten, not added to: two changes of a second moment could add up to a value below 0.
  So Adam counts only one of the steps that are taken at the same moment.
- If a step copies a network X to its target network ``target.X``, the target is overwritten too: the sum of two copies
  is a copy of nothing.
- A step that is infinite or NaN anywhere is not added.
- If values are normalised, their last layer changes with their statistics. A learner may read one before and the other
  after that: its step then has values in wrong units. After the first few batches both hardly change.
- Each step is noted in stream ``gradients``, and each note is settled once. So rows, rollouts and steps are counted as
  with the parameter server.

Knows no algorithm.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.errors import BadDataError
from penstock.gradient_exchange.gradients import GradientStream, Learner, learner_of
from penstock.nodes.contract import Ports
from penstock.nodes.learner.gradient_slot import vector_specs
from penstock.nodes.ports import BoardReader, StreamWriter
from penstock.types import Array, Arrays, ArraySpec
from penstock.updates.contract import Stateful, StreamApplier
from penstock.updates.settings import UpdaterSettings

__all__ = ["Hogwild", "VectorOwner", "build", "build_owner"]

TARGET = "target."
"""Begins the name of the array that follows another one."""


def build(ports: Ports, settings: UpdaterSettings, learners: int) -> "Hogwild":
    """A learner's end of stream ``gradients``, of board ``parameters`` and of the shared arrays ``vector``."""
    spec = settings.spec
    kept = {part.name for part in vector_specs(spec.state)}
    return Hogwild(
        ports.stream_writer("gradients"),
        ports.board_reader("parameters"),
        [part for part in spec.shared() if part.name not in kept and part.name != "gradient_steps"],
        learner_of(ports, settings, learners),
        vector=ports.shared("vector"),
        overwritten=frozenset(spec.optimizer),
    )


def build_owner(ports: Ports, settings: UpdaterSettings, applier: StreamApplier) -> "VectorOwner":
    """The end of the node that owns the run's state."""
    del settings
    return VectorOwner(ports.shared("vector"), applier)


class Hogwild(GradientStream):
    """One learner's end. What is not explained here is as in `GradientStream`.

    Args:
        told: specs of the arrays of the state that the board holds.
        vector: name -> the shared array.
        overwritten: names of the optimizer's arrays.
    """

    def __init__(
        self,
        gradients: StreamWriter,
        parameters: BoardReader,
        told: Sequence[ArraySpec],
        learner: Learner,
        *,
        vector: Arrays,
        overwritten: frozenset[str],
    ) -> None:
        super().__init__(gradients, parameters, told, learner)
        self._vector = vector
        self._overwritten = overwritten
        self._before: Arrays = {}

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """As `GradientStream.join`; with the shared vector as it is."""
        found = super().join(state)
        return None if found is None else {**found, **self._read()}

    def begin(self, updater: Stateful) -> bool:
        """Ask to begin a gradient step from the shared vector. False while no slot is free."""
        if not super().begin(updater):
            return False
        self._before = self._read()
        updater.load(self._before)
        return True

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """This learner's own gradients, which it steps down. See `penstock.updates.team.Exchange`."""
        del phase, weight
        return gradients

    def mean(self, arrays: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The same numbers: a minibatch is this learner's own. See `penstock.updates.team.Exchange`."""
        del weight
        return arrays

    def end(self) -> None:
        """End the step: add it to the shared vector, and note that.

        Raises:
            BadDataError: it is infinite or NaN somewhere. Nothing of it was added.
        """
        if self._updater is not None:
            self.tell("sent", self._add(self._updater.state()))
        super().end()

    def _read(self) -> Arrays:
        return {name: values.copy() for name, values in self._vector.items()}

    def _add(self, after: Mapping[str, Array]) -> int:
        """Add what a step has changed to the shared vector. Returns the bytes of what was added."""
        before = self._before
        changed = {name: after[name] for name in before if not np.array_equal(after[name], before[name])}
        bad = sorted(name for name, values in changed.items() if not np.isfinite(values).all())
        if bad:
            raise BadDataError(
                f"a gradient step would make {', '.join(bad)} infinite or NaN; nothing of it was kept; a smaller --lr, "
                "or rewards of a smaller scale, may help"
            )
        sent = 0
        for name, values in changed.items():
            shared = self._vector[name]
            if name in self._overwritten or _is_copy(name, after):
                shared[...] = values
            else:
                np.add(shared, values - before[name], out=shared)
                sent += values.nbytes
        return sent


class VectorOwner:
    """The state as all learners have made it. As `penstock.updates.contract.StreamApplier`, but it applies nothing.

    Args:
        vector: name -> the shared array.
        applier: computes running statistics of rollouts.
    """

    def __init__(self, vector: Arrays, applier: StreamApplier) -> None:
        self._vector = vector
        self._applier = applier
        self._own: Arrays = {}
        """The arrays of the state that are not shared."""

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state (initial, or of a checkpoint), or some of its arrays."""
        for name, values in state.items():
            if name in self._vector:
                self._vector[name][...] = values
            else:
                self._own[name] = np.array(values)
        self._applier.load(state)

    def state(self) -> Arrays:
        """The state's named arrays. Learners go on changing them."""
        return {**self._own, **self._vector}

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """Count a step that a learner has taken."""
        del gradients
        self._own["progress"] = np.array(progress)
        if "gradient_steps" in self._own:
            self._own["gradient_steps"] = self._own["gradient_steps"] + 1

    def merge(self, slots: Sequence[int], *, learned: bool = False) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        self._change(lambda: self._applier.merge(slots, learned=learned))

    def finish(self) -> None:
        """End a batch."""
        self._change(self._applier.finish)

    def _change(self, change: Callable[[], None]) -> None:
        """Change the shared vector as the applier changes a copy of it."""
        before = {name: values.copy() for name, values in self._vector.items()}
        self._applier.load(before)
        change()
        for name, values in self._applier.state().items():
            # New statistics of values also change the last layer of a network, to which learners add their steps
            # meanwhile. So add the change: writing the new values would undo these steps.
            if name in before and not np.array_equal(values, before[name]):
                np.add(self._vector[name], values - before[name], out=self._vector[name])


def _is_copy(name: str, after: Mapping[str, Array]) -> bool:
    """True for a target network that a step has made equal to its network."""
    network = name.removeprefix(TARGET)
    return network != name and network in after and np.array_equal(after[name], after[network])
