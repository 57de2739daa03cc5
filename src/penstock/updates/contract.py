"""THE contract of updaters: what each backend in ``updates/`` gives. Knows no algorithm, no device, no other learner.

What a learner does together with others stands in ``updates/team.py``.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from penstock.kernels.steps import StepKeys
from penstock.replay.minibatches import TableMinibatches
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays

__all__ = [
    "Applier",
    "Holder",
    "ReplayUpdater",
    "SamplingUpdater",
    "Stateful",
    "StreamApplier",
    "Updater",
]


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

    def merge(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order, between `begin` and `minibatches`.

        Statistics of values change at once. The last layer of the network with the value changes with them, so that
        values stay as they are; an untrained layer, before the first batch, is left alone. All other statistics change
        at `finish`.
        """
        ...

    def finish(self) -> None:
        """End the batch: apply the statistics that `merge` held back."""
        ...


class Holder(Protocol):
    """Any updater or applier: it holds a state."""

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        ...

    def state(self) -> Arrays:
        """The state's named arrays on the CPU; valid until the next call."""
        ...


class Stateful(Holder, Protocol):
    """Any updater, as a `Team` sees it."""

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        ...


class ReplayUpdater(Protocol):
    """Holds a learner's state on its device and learns from minibatches sampled from a table.

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

    def write_state(self, into: Arrays) -> None:
        """Write the state's named arrays into those of the same names; others are left alone."""
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


@runtime_checkable
class SamplingUpdater(Protocol):
    """A `ReplayUpdater` that can sample for itself: a learner that is alone takes many gradient steps in one call."""

    def sample_from(self, sampler: Sampler, places: Arrays, tree: SumTree | None, alpha: float) -> TableMinibatches:
        """Sample by this sampler in `learn_many`.

        Args:
            sampler: of the table.
            places: ``index`` and ``stamp``, int64 ``[m]``, filled with each minibatch.
            tree: the priorities of the table's rows; ``None``: they have none.
            alpha: power of the priorities that the phases compute.

        Returns:
            The minibatches: which slots they sample from, and the priorities that they have changed.
        """
        ...

    def learn_many(self, keys: StepKeys, most: int, progress: float) -> int:
        """Take at least one and at most ``most`` gradient steps, each with a minibatch of its own.

        Args:
            keys: sampling keys.
            most: number of gradient steps.
            progress: in [0, 1]; drives schedules.

        Returns:
            How many steps were taken.

        Raises:
            ResourceError: no row can be sampled.
            BadDataError: a priority is infinite or NaN.
        """
        ...


class Applier(Protocol):
    """Holds a state on its device and applies gradients that other learners have computed."""

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


class StreamApplier(Applier, Protocol):
    """An `Applier` of gradients that were computed on rollouts of a stream."""

    def merge(self, slots: Sequence[int], *, learned: bool = False) -> None:
        """As `Updater.merge`, but computes only the targets that statistics need.

        Args:
            slots: of the rollouts.
            learned: gradients on them were applied before. The last layer is then changed in any case.
        """
        ...

    def finish(self) -> None:
        """As `Updater.finish`."""
        ...
