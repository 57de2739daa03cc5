"""Learning from a stream: many minibatches in one call; or one at a time, with other learners.

Packs the rows of a batch once. Changes the state in place. Knows no algorithm beyond its fused functions.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.algorithm import AlgorithmSpec, Fused, StreamShape
from penstock.algorithm_lookup import load_functions
from penstock.types import Array, Arrays
from penstock.updates.rows import Rows, Targeted
from penstock.updates.running import RunningStatistics
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import Exchange, HandOn

__all__ = [
    "FusedStreamApplier",
    "FusedStreamFollower",
    "FusedUpdater",
    "build",
    "build_stream_applier",
    "build_stream_follower",
]


def build(settings: UpdaterSettings, arrays: Mapping[str, Array], exchange: Exchange | None = None) -> "FusedUpdater":
    """The updater of a learner from a stream; as `penstock.registry.UpdateBackend.stream`.

    Runs on the CPU: a plan gives this backend no other device.
    """
    return FusedUpdater(_functions(settings), settings.spec, arrays, settings.threads, exchange)


def build_stream_follower(
    settings: UpdaterSettings, arrays: Mapping[str, Array], hand_on: HandOn
) -> "FusedStreamFollower":
    """The updater of a learner that hands its gradients on; as `penstock.registry.UpdateBackend.stream_follower`."""
    return FusedStreamFollower(_functions(settings), settings, arrays, hand_on)


def build_stream_applier(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "FusedStreamApplier":
    """The applier of gradients computed on rollouts; as `penstock.registry.UpdateBackend.stream_applier`."""
    return FusedStreamApplier(_functions(settings), settings.spec, arrays)


def _functions(settings: UpdaterSettings) -> Fused:
    fused: Fused = load_functions(settings.learn)(settings.spaces, settings.config)
    return fused


class _StreamUpdater:
    """Holds a state, and the rows of a stream for the gradients that are computed here.

    Args:
        fused: the algorithm's functions.
        spec: of the algorithm.
        arrays: field -> ``[slots, T + 1, lanes, ...]``.
        threads: of the native update.
        packs: rows are packed here for minibatches.
    """

    def __init__(
        self, fused: Fused, spec: AlgorithmSpec, arrays: Mapping[str, Array], threads: int, *, packs: bool
    ) -> None:
        self._fused = fused
        self._running = RunningStatistics(spec.policy, fused.statistics)
        whole = spec.unit == "lane"
        self._rows = rows = Rows(arrays, (*spec.minibatch, "valid") if whole else spec.minibatch, spec.targets)
        self._packed = rows.per_slot if whole else rows.learned_per_slot
        self._state = {part.name: np.zeros(part.shape, part.dtype) for part in spec.state}
        self._update = fused.update(StreamShape(rows.slots if packs else 0, rows.steps, rows.lanes), threads)

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        for name, values in state.items():
            self._state[name][...] = values

    def state(self) -> Arrays:
        """The state's named arrays; valid until the next call."""
        return self._state

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._update.metrics()

    def merge(self, slots: Sequence[int], *, learned: bool = False) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        self.load(self._running.merged(self._state, map(self._rollout, slots), learned=learned))

    def finish(self) -> None:
        """Apply the statistics that `merge` held back until their batch was learned from."""
        self.load(self._running.held_back())

    def _rollout(self, slot: int) -> Mapping[str, Array]:
        """A rollout whose statistics are merged, with its targets."""
        return self._rows.rollout(slot)

    def _target(self, slot: int) -> None:
        """Compute the targets of a rollout, in place."""
        self._rows.prepare(slot, lambda rollout: self._fused.targets(self._state, rollout))


class _Learning(_StreamUpdater):
    """An updater that computes gradients on minibatches.

    Rows are packed at the first minibatch of a batch, normalised by the statistics of the state. Where another learner
    changes these in the middle of a batch, rows are packed anew before the next minibatch.
    """

    def __init__(self, fused: Fused, spec: AlgorithmSpec, arrays: Mapping[str, Array], threads: int) -> None:
        super().__init__(fused, spec, arrays, threads, packs=True)
        self._statistics = tuple(part.name for part in spec.policy.statistics())
        self._slots: tuple[int, ...] = ()
        """Those of the batch."""
        self._stale = False
        """The packed rows are those of an earlier batch, or normalised by other statistics than the state's."""

    def load(self, state: Mapping[str, Array]) -> None:
        """As `_StreamUpdater.load`."""
        self._stale |= any(
            name in state and not np.array_equal(state[name], self._state[name]) for name in self._statistics
        )
        super().load(state)

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``."""
        self._state["progress"][...] = progress
        self._slots = tuple(slots)
        for slot in slots:
            self._target(slot)
        self._stale = True

    def _pack(self) -> None:
        """Pack the rows of the batch, unless they are packed."""
        if not self._stale:
            return
        for slot in self._slots:
            self._update.pack(self._state, self._rows.flat, slot * self._rows.per_slot, self._packed)
        self._stale = False


class FusedUpdater(_Learning):
    """Computes gradients and steps down them, alone or together with other learners.

    Args:
        fused: the algorithm's functions.
        spec: of the algorithm.
        arrays: field -> ``[slots, T + 1, lanes, ...]``.
        threads: of the native update.
        exchange: how it agrees with other learners, of whose minibatches this one has a share; ``None``: it is alone.
    """

    def __init__(
        self,
        fused: Fused,
        spec: AlgorithmSpec,
        arrays: Mapping[str, Array],
        threads: int,
        exchange: Exchange | None = None,
    ) -> None:
        super().__init__(fused, spec, arrays, threads)
        self._exchange = exchange

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Take one gradient step for each row of ``indices``: flat rows, or row 0 of whole lanes."""
        self._pack()
        if self._exchange is None:
            self._update.run(self._state, indices, weights)
            return
        for units, weight in zip(indices, weights, strict=True):
            self._step(units, weight, self._exchange)

    def _step(self, units: Array, weights: Array, exchange: Exchange) -> None:
        """Compute the gradients of this learner's share of a minibatch, and step down those that all agree on."""
        update, here = self._update, _mean_by(weights)

        def everywhere(values: Array) -> float:
            own = np.array([here(values)], np.float32)
            return float(exchange.mean({"mean": own}, float(weights.sum()))["mean"][0])

        found, weight = update.gradients(self._state, units, weights, update.across_minibatch(units, everywhere))
        update.apply(self._state, exchange(update.phase, found, weight))


class FusedStreamFollower(_Learning):
    """Computes the gradients of this learner's share of each minibatch and hands them on. Applies none.

    A minibatch holds the shares of ``settings.sharing`` learners, one after the other, because fields such as
    normalised advantages depend on all its rows.
    """

    def __init__(self, fused: Fused, settings: UpdaterSettings, arrays: Mapping[str, Array], hand_on: HandOn) -> None:
        super().__init__(fused, settings.spec, arrays, settings.threads)
        own = settings.spec.schedule.mini_batch_size * settings.accumulate
        first = settings.learner % settings.sharing * own
        self._own = slice(first, first + own)
        self._hand_on = hand_on

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Hand on the gradients of the own share of each row of ``indices``."""
        self._pack()
        update = self._update
        for units, weight in zip(indices, weights, strict=True):
            across = update.across_minibatch(units, _mean_by(weight))
            self._hand_on(update.phase, *update.gradients(self._state, units[self._own], weight[self._own], across))


class FusedStreamApplier(_StreamUpdater):
    """Applies gradients that other learners have found on a stream, and keeps the running statistics of its rollouts.

    It takes no minibatches.
    """

    def __init__(self, fused: Fused, spec: AlgorithmSpec, arrays: Mapping[str, Array]) -> None:
        super().__init__(fused, spec, arrays, threads=1, packs=False)

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """Take one gradient step. As `penstock.updates.contract.Applier.apply`."""
        self._state["progress"][...] = progress
        self._update.apply(self._state, gradients[self._update.phase])

    def _rollout(self, slot: int) -> Mapping[str, Array]:
        return Targeted(self._rows.rollout(slot), self._rows.targets, lambda: self._target(slot))


def _mean_by(weights: Array) -> Callable[[Array], float]:
    """The mean of one number for each unit, by these weights; 0 if none counts. The numbers of padding mean nothing."""
    counts = weights > 0.0
    share = weights[counts].astype(np.float64)
    total = share.sum() or 1.0
    return lambda values: float(share @ values[counts] / total)
