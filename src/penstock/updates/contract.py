"""THE contract of what turns batches into new states, and of those who do it together. Knows no algorithm, no device.

An updater of ``updates/`` has one of these shapes; what is in ``exchange/`` is a team, and an exchange or what takes
gradients that are handed on.
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
        """Compute the targets of the rollouts in ``slots``; ``progress`` in [0, 1] drives schedules."""
        ...

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices[n, m]`` (int64 flat rows); ``weights[n, m]`` is 0 for padding."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        ...

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order, into the state."""
        ...


class Exchange(Protocol):
    """How several learners agree on a gradient: called once a phase that has one, between gradients and step."""

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The gradient to step down; valid until the next call.

        Args:
            phase: its name.
            gradients: network -> float32 ``[n]``: a mean over this learner's minibatch.
            weight: sum of the minibatch's ``weight``: what the mean counts beside the other learners'.
        """
        ...


class HandOn(Protocol):
    """Takes the gradients of a learner that does not step by itself: called once a phase that has some."""

    def __call__(self, phase: str, gradients: Mapping[str, Array]) -> None:
        """Take a copy of ``gradients``, network -> ``[n]``: a mean over this learner's minibatch."""
        ...


class ReplayUpdater(Protocol):
    """Holds a learner's state on its device, and learns from minibatches drawn from a table: eager or compiled.

    One steps by what it finds, alone or as agreed with others. Another hands its gradients on; its state is what it was
    given, and it counts its gradient steps.
    """

    @property
    def gradient_steps(self) -> int:
        """How many the state has seen; since it was loaded, where it does not count them itself."""
        ...

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state (initial, or of a checkpoint), or the arrays of it that are named."""
        ...

    def state(self) -> Arrays:
        """The state's named arrays on the CPU; valid until the next call."""
        ...

    def buffers(self) -> Arrays:
        """Arrays for a minibatch; each call makes others.

        The first may be where `learn` reads any minibatch from, so that this one needs no copy: only who draws and
        learns in turns uses them.
        """
        ...

    def learn(self, minibatch: Mapping[str, Array], progress: float) -> Arrays:
        """One gradient step: every phase that is due.

        Args:
            minibatch: arrays of ``AlgorithmSpec.sampled``, ``[n m, ...]`` each. n is ``UpdaterSettings.accumulate``,
                m the schedule's ``mini_batch_size``.
            progress: in [0, 1]; drives schedules.

        Returns:
            What the phases find for each row (``priority``), ``[n m]`` each; empty where they find nothing.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        ...


class Applier(Protocol):
    """Holds a state on its device, and steps it by gradients that others have found: eager or compiled."""

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state (initial, or of a checkpoint)."""
        ...

    def state(self) -> Arrays:
        """The state's named arrays on the CPU; valid until the next call."""
        ...

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """One gradient step by gradients that were found from a state that may be older.

        Args:
            gradients: phase -> network -> ``[n]``. A phase that has gradients and is not named does not step.
            progress: in [0, 1].
        """
        ...


class Team(Protocol):
    """What a learner knows of the others: when it may go on. It takes gradients too, as ``Exchange`` or ``HandOn``."""

    def join(self, state: Mapping[str, Array]) -> Arrays | None:
        """Become one of the learners, before the first gradient step; waits for the others.

        Args:
            state: what this learner would begin with.

        Returns:
            What it begins with. ``None``: the run is to end.
        """
        ...

    def begin(self, updater: ReplayUpdater) -> bool:
        """A gradient step is wanted: true if it may begin now. The updater may be given a newer state."""
        ...

    def end(self) -> None:
        """A gradient step has ended."""
        ...

    def leave(self) -> None:
        """The others go on without this learner."""
        ...
