"""THE contract of updaters, and of the exchange between several learners. Knows no algorithm and no device.

``updates/`` has the `Updater`, `ReplayUpdater` and `Applier` of each backend. ``gradient_exchange/`` has each `Team`,
which is also an `Exchange` or a `HandOn`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.types import Array, Arrays

__all__ = ["Applier", "Exchange", "HandOn", "ReplayUpdater", "Team", "Updater"]


class Updater(Protocol):
    """Holds a learner's state on its device and turns batches into new states: eager, compiled or fused.

    Rows are addressed by flat index ``(slot * (T + 1) + t) * lanes + lane`` into the stream's arrays.
    """

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state (initial, or of a checkpoint)."""
        ...

    def state(self) -> Arrays:
        """The state's named arrays on the CPU; valid until the next call."""
        ...

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``. ``progress``, in [0, 1], drives schedules."""
        ...

    def minibatches(self, indices: Array, weights: Array) -> None:
        """One gradient step for each row of ``indices[n, m]``, int64 flat rows. ``weights[n, m]`` is 0 for padding."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        ...

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order, into the state."""
        ...


class Exchange(Protocol):
    """How several learners agree on a gradient. Called once for each phase that has one, before the step."""

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The gradient that all learners step down; valid until the next call.

        Args:
            phase: name of the phase.
            gradients: network -> float32 ``[n]``: the mean over this learner's minibatch.
            weight: sum of the minibatch's ``weight``. The learners' means are averaged with these weights.
        """
        ...


class HandOn(Protocol):
    """Takes the gradients of a learner that does not apply them itself. Called once for each phase that has some."""

    def __call__(self, phase: str, gradients: Mapping[str, Array]) -> None:
        """Copy ``gradients``, network -> ``[n]``: the mean over this learner's minibatch."""
        ...


class ReplayUpdater(Protocol):
    """Holds a learner's state on its device and learns from minibatches sampled from a table: eager or compiled.

    There are two kinds. One applies its gradients, alone or as agreed with other learners. The other hands them on: it
    keeps the state that it was given and only counts gradient steps.
    """

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of the state. If the state has no such count: gradient steps since it was loaded."""
        ...

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state (initial, or of a checkpoint), or some of its arrays."""
        ...

    def state(self) -> Arrays:
        """The state's named arrays on the CPU; valid until the next call."""
        ...

    def buffers(self) -> Arrays:
        """New arrays for a minibatch at each call.

        `learn` may read the first ones in place, without a copy. So they may only be filled while `learn` is not
        running.
        """
        ...

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """Take one gradient step: every phase that is due.

        Args:
            minibatch: arrays of ``AlgorithmSpec.sampled``, ``[n m, ...]`` each. n is ``UpdaterSettings.accumulate``,
                m the schedule's ``mini_batch_size``.
            progress: in [0, 1]; drives schedules.

        Returns:
            What the phases compute for each row (``priority``), ``[n m]`` each; may be empty.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        ...


class Applier(Protocol):
    """Holds a state on its device and applies gradients that other learners have computed: eager or compiled."""

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state (initial, or of a checkpoint)."""
        ...

    def state(self) -> Arrays:
        """The state's named arrays on the CPU; valid until the next call."""
        ...

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """Take one gradient step. The gradients may have been computed from an older state.

        Args:
            gradients: phase -> network -> ``[n]``. A phase with gradients that is missing here is left out.
            progress: in [0, 1]; drives schedules.
        """
        ...


class Team(Protocol):
    """What a learner knows of the others: when it may go on. It is also an ``Exchange`` or a ``HandOn``."""

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Join the team, before the first gradient step. Waits for the other learners.

        Args:
            state: the state with which this learner would begin.

        Returns:
            The state with which it begins. ``None``: the run is to end.
        """
        ...

    def begin(self, updater: ReplayUpdater) -> bool:
        """True if the next gradient step may begin now. May load a newer state into the updater."""
        ...

    def end(self) -> None:
        """Tell that a gradient step has ended."""
        ...

    def leave(self) -> None:
        """Leave the team. The others go on without this learner."""
        ...
