"""The three updaters of learners from a stream, over any `Stepper`. They also compute targets and running statistics.

- The first takes whole gradient steps.
- The second computes gradients, which its learner hands on.
- The third applies gradients that others have computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from penstock.ops.losses import Mean, mean_by
from penstock.policies import PolicyGraph
from penstock.types import Array, Arrays
from penstock.updates.batch import Batch
from penstock.updates.inbox import in_parts
from penstock.updates.rows import Targeted
from penstock.updates.running import RunningStatistics
from penstock.updates.settings import UpdaterSettings
from penstock.updates.stepper import Parts, Stepper
from penstock.updates.team import Exchange, HandOn

__all__ = ["StreamFollower", "StreamGradientApplier", "StreamLearner"]

ALIGNMENT = 64
"""Bytes; torch allocates at multiples of it."""


class AroundPhases(Protocol):
    """The functions of an algorithm that are not phases: computed once for each rollout or minibatch."""

    @property
    def recompute(self) -> Callable[[Any, Any], Any] | None:
        """As `penstock.algorithm.Algorithm.recompute`."""
        ...

    @property
    def targets(self) -> Callable[[Any, Any], Any]:
        """As `penstock.algorithm.Algorithm.targets`."""
        ...

    @property
    def statistics(self) -> Callable[[Any, Any], Any]:
        """As `penstock.algorithm.Algorithm.statistics`."""
        ...

    @property
    def across_minibatch(self) -> Callable[[Any, Any], Any]:
        """As `penstock.algorithm.Algorithm.across_minibatch`."""
        ...


class StreamLearner:
    """Learns from a stream. Subclasses make the stepper.

    Args:
        algorithm: its functions that are not phases.
        policy: that is learned.
        batch: the stream's rows.
        part_size: units of one part of a minibatch.
        parts: parts of a minibatch, whose gradients are averaged before a step.
        exchange: how it agrees with the learners with which it shares each minibatch; ``None``: it is alone.
    """

    _stepper: Stepper

    def __init__(
        self,
        algorithm: AroundPhases,
        policy: PolicyGraph,
        batch: Batch,
        part_size: int,
        parts: int,
        *,
        exchange: Exchange | None = None,
    ) -> None:
        self._algorithm = algorithm
        self._running = RunningStatistics(policy, algorithm.statistics)
        self._batch = batch
        self._parts = parts
        self._exchange = exchange
        self._rows = batch.buffers(part_size * parts)

    def hold(self, stepper: Stepper) -> None:
        """Learn by this stepper from now on."""
        self._stepper = stepper

    def part(self, size: int) -> dict[str, Tensor]:
        """New buffers of one part of a minibatch, with ``size`` units."""
        return {name: values.new_zeros((size, *values.shape[2:])) for name, values in self._rows.items()}

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or some of its arrays."""
        self._stepper.load(state)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return self._stepper.arrays()

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``."""
        self._stepper.progress(progress)
        state = _LazyState(self._stepper.tensors())
        recomputed = iter(self._recomputed(slots))
        self._batch.prepare(slots, lambda rollout: self._algorithm.targets(state, {**rollout, **next(recomputed)}))

    def _recomputed(self, slots: Sequence[int]) -> list[Arrays]:
        """What the current parameters make of the rollout of each slot, if the algorithm needs that.

        All slots are recomputed at once, because the bits of a product may depend on its number of rows. So they do not
        depend on the number of workers, among which the lanes are divided.
        """
        if self._algorithm.recompute is None:
            return [{} for _ in slots]
        tensors = self._stepper.tensors()
        rollouts = [self._batch.rollout(slot) for slot in slots]
        with torch.no_grad():
            found = self._algorithm.recompute(
                tensors, _Joined(rollouts, self._batch.per_lane, tensors["progress"].device)
            )
        parts = {name: np.split(values.cpu().numpy(), len(slots), axis=1) for name, values in found.items()}
        return [
            {name: np.ascontiguousarray(values[place]) for name, values in parts.items()} for place in range(len(slots))
        ]

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Take one gradient step for each row of ``indices``."""
        capacity = len(self._rows["weight"])
        for start in range(0, len(indices), capacity):
            part = slice(start, start + capacity)
            self._learn(self._batch.gather(indices[part], weights[part], self._rows))

    def _learn(self, weights: Array) -> None:
        """Take a gradient step by each gathered minibatch. Its ``weight`` is ``weights[i]``."""
        columns = [values[: len(weights)].unbind() for values in self._rows.values()]
        of_parts = weights.reshape(len(weights), self._parts, -1).sum(2)
        for values, counts in zip(zip(*columns, strict=True), of_parts.tolist(), strict=True):
            minibatch = dict(zip(self._rows, map(_aligned, values), strict=True))
            # This learner may have no row of a minibatch of which other learners have rows. Then its numbers do not
            # count, but they must be finite. So the padding gets weight 1.
            total = sum(counts)
            if total == 0.0:
                minibatch["weight"] = torch.ones_like(minibatch["weight"])
            minibatch |= self._algorithm.across_minibatch(minibatch, self._mean(minibatch["weight"], total))
            self._take(in_parts(minibatch, self._parts), counts)

    def _take(self, parts: Parts, weights: Sequence[float]) -> None:
        """Take a gradient step by these parts of a minibatch."""
        self._stepper.step(*_filled(parts, weights), self._exchange)

    def _mean(self, weight: Tensor, total: float) -> Mean:
        """A function that takes means over a minibatch, over the rows of all learners.

        Args:
            weight: of each row of this learner.
            total: sum of the weights of this learner's rows.
        """
        here, exchange = mean_by(weight), self._exchange
        if exchange is None:
            return here

        def everywhere(values: Tensor) -> Tensor:
            found = exchange.mean({"mean": here(values).reshape(1).cpu().numpy()}, total)
            return torch.tensor(found["mean"][0], device=values.device)

        return everywhere

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._stepper.metrics()

    def merge(self, slots: Sequence[int], *, learned: bool = False) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        state = _LazyState(self._stepper.tensors())
        self.load(self._running.merged(state, map(self._rollout, slots), learned=learned))

    def finish(self) -> None:
        """Apply the statistics that `merge` held back until their batch was learned from."""
        self.load(self._running.held_back())

    def _rollout(self, slot: int) -> Mapping[str, Array]:
        """A rollout whose statistics are merged, with its targets."""
        return self._batch.rollout(slot)


class StreamFollower(StreamLearner):
    """Computes the gradient of this learner's share of each minibatch and hands it on. Applies none.

    A minibatch holds the shares of ``settings.sharing`` learners, one after the other, because fields such as
    normalised advantages depend on all its rows.
    """

    def __init__(self, algorithm: AroundPhases, batch: Batch, settings: UpdaterSettings, hand_on: HandOn) -> None:
        parts = settings.sharing * settings.accumulate
        super().__init__(algorithm, settings.spec.policy, batch, settings.spec.schedule.mini_batch_size, parts)
        first = settings.learner % settings.sharing * settings.accumulate
        self._own = slice(first, first + settings.accumulate)
        self._hand_on = hand_on

    def _take(self, parts: Parts, weights: Sequence[float]) -> None:
        """Hand on the gradient of the own share."""
        own, counts = parts[self._own], weights[self._own]
        if sum(counts) == 0.0:
            # Others have rows of this minibatch. The numbers of a share without rows only have to be finite.
            own = [{**part, "weight": torch.ones_like(part["weight"])} for part in own]
        self._stepper.hand_on(*_filled(own, counts), self._hand_on)


class StreamGradientApplier(StreamLearner):
    """Applies gradients that other learners have found on a stream, and keeps the running statistics of its rollouts.

    It takes no minibatches.
    """

    def __init__(self, algorithm: AroundPhases, policy: PolicyGraph, batch: Batch) -> None:
        super().__init__(algorithm, policy, batch, part_size=1, parts=1)

    def apply(self, gradients: Mapping[str, Mapping[str, Array]], progress: float) -> None:
        """Take one gradient step. As `penstock.updates.contract.Applier.apply`."""
        self._stepper.progress(progress)
        self._stepper.apply(gradients)

    def _rollout(self, slot: int) -> Mapping[str, Array]:
        return Targeted(self._batch.rollout(slot), self._batch.targets, lambda: self._target(slot))

    def _target(self, slot: int) -> None:
        state = _LazyState(self._stepper.tensors())
        (recomputed,) = self._recomputed([slot])
        self._batch.prepare([slot], lambda rollout: self._algorithm.targets(state, {**rollout, **recomputed}))


def _filled(parts: Parts, weights: Sequence[float]) -> tuple[Parts, Sequence[float]]:
    """The parts that have rows; the first part if none has any. Parts of padding alone are last, and have no mean."""
    count = max(1, sum(weight > 0.0 for weight in weights))
    return parts[:count], weights[:count]


def _aligned(values: Tensor) -> Tensor:
    """The values, copied unless they begin at a multiple of ``ALIGNMENT``.

    The bits of a sum may depend on where its numbers begin. How many minibatches are gathered at a time depends on
    their speed, and so does the place of a minibatch among them.
    """
    return values if values.data_ptr() % ALIGNMENT == 0 else values.clone()


class _LazyState(Mapping[str, Array]):
    """A state on the CPU. Each array is copied from the device at its first use; most are never used.

    Args:
        tensors: the state on its device. It must not change meanwhile.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._arrays: Arrays = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = self._tensors[name].cpu().numpy()
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class _Joined(Mapping[str, Tensor]):
    """The rollouts of several slots as one, their lanes side by side, on the learner's device.

    A field is joined and sent there when it is used; most are never used.
    """

    def __init__(self, rollouts: Sequence[Arrays], per_lane: Sequence[str], device: torch.device) -> None:
        self._rollouts = rollouts
        self._per_lane = per_lane
        self._device = device

    def __getitem__(self, name: str) -> Tensor:
        axis = 0 if name in self._per_lane else 1
        return torch.from_numpy(np.concatenate([rollout[name] for rollout in self._rollouts], axis)).to(self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rollouts[0])

    def __len__(self) -> int:
        return len(self._rollouts[0])
