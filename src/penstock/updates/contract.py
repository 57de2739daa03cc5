"""THE contract of updaters, and of the exchange between several learners. Knows no algorithm and no device.

``updates/`` has the `Updater`, `ReplayUpdater` and `Applier` of each backend. ``gradient_exchange/`` has each `Team`,
which is also an `Exchange` or a `HandOn`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from penstock.errors import PenstockError
from penstock.kernels.steps import StepKeys
from penstock.replay.minibatches import TableMinibatches
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays

__all__ = [
    "Applier",
    "DissolvedError",
    "Exchange",
    "HandOn",
    "Members",
    "ReplayUpdater",
    "SamplingUpdater",
    "ShardTeam",
    "Stateful",
    "StreamApplier",
    "StreamTeam",
    "Team",
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


class Stateful(Protocol):
    """Any updater, as a `Team` sees it."""

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        ...

    def state(self) -> Arrays:
        """The state's named arrays on the CPU; valid until the next call."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call."""
        ...


class DissolvedError(PenstockError):
    """A learner on another machine is lost, and no round goes on: all learners give up the batch and meet anew."""


class Exchange(Protocol):
    """How several learners agree on a gradient. Called once for each phase that has one, before the step."""

    def mean(self, arrays: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        """The exact weighted mean of a few float32 over all learners, such as moments of advantages."""
        ...

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

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> object:
        """Copy ``gradients``.

        Args:
            phase: name of the phase.
            gradients: network -> float32 ``[n]``: the mean over this learner's minibatch.
            weight: sum of the minibatch's ``weight``.
        """
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
    """An `Applier` of gradients that were found on rollouts of a stream."""

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


class Members(Exchange, Protocol):
    """What a learner from a stream knows of the others. All take the gradient steps of a batch together.

    The keeper is the learner that commits. It alone admits others, and only between two batches.
    """

    def enter(self, state: Mapping[str, Array]) -> Arrays | None:
        """Try to become a member.

        Args:
            state: the state with which this learner would begin.

        Returns:
            The state with which it begins. ``None``: it has to wait; call this again.
        """
        ...

    def admit(self, state: Mapping[str, Array]) -> None:
        """Make members of the learners that wait. They begin with ``state``. Only for the keeper."""
        ...

    def settle(self, updater: Updater) -> None:
        """End a batch together: wait for all, and change the state as all have agreed on."""
        ...

    def sent(self) -> int:
        """Bytes that this learner has sent to others since the last call, to agree on steps."""
        ...

    def lost(self) -> bool:
        """True once the keeper has gone. What was learned since its last commit counts for nothing."""
        ...

    def leave(self) -> None:
        """Leave. The others go on without this learner."""
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

    def begin(self, updater: Stateful) -> bool:
        """True if the next gradient step may begin now. May load a newer state into the updater."""
        ...

    def sent(self) -> int:
        """Bytes of gradients that this learner has sent since the last call."""
        ...

    def end(self) -> None:
        """Tell that a gradient step has ended."""
        ...

    def leave(self) -> None:
        """Leave the team. The others go on without this learner."""
        ...


@runtime_checkable
class ShardTeam(Team, Protocol):
    """The `Team` of learners that sample each minibatch together, each its part from its own shard of a table."""

    def weigh(self, factor: float) -> None:
        """Let this learner's gradients count by this factor in the means of the next gradient step.

        Args:
            factor: see `penstock.replay.shards.factor`. Only the ratios of all learners' factors matter.
        """
        ...

    def gather(self, values: Array) -> list[Array]:
        """What each learner brings: float64 ``[n]``, in the order of the learners."""
        ...

    def lost(self) -> bool:
        """True once the keeper has gone, or on several machines any learner."""
        ...

    def meeting(self) -> int:
        """A number that tells one meeting of these learners from another; 0 on one machine."""
        ...

    def settle(self, updater: Stateful) -> None:
        """End a turn together: wait until all have learned from all minibatches of the turn."""
        ...


class StreamTeam(Team, Protocol):
    """The `Team` of a learner that finds gradients on rollouts of a stream."""

    def watch(self, arrays: Arrays) -> None:
        """Whenever newer parameters are taken, also read these arrays of board ``parameters``, of the same version."""
        ...

    def in_flight(self) -> bool:
        """True while gradients that this learner or an earlier life of it has handed on are not settled."""
        ...

    def found(self) -> dict[str, float]:
        """The metrics of the step that has begun. They are handed on with it."""
        ...

    def tell(self, name: str, value: Array | float) -> None:
        """Add a field to the slot of the present step. Some fields are in every slot."""
        ...
