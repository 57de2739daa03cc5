"""The updater of a learner from a stream, over any `Stepper`: targets, minibatches, running statistics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from penstock.types import Array, Arrays
from penstock.updates.batch import Batch
from penstock.updates.inbox import in_parts
from penstock.updates.learning import Stepper

__all__ = ["StreamLearner"]


class AroundPhases(Protocol):
    """The functions of an algorithm that are not phases: computed once for each rollout or minibatch."""

    @property
    def judge(self) -> Callable[[Any, Any], Any] | None:
        """As `penstock.algorithm.Algorithm.judge`."""
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
    def whole(self) -> Callable[[Any], Any]:
        """As `penstock.algorithm.Algorithm.whole`."""
        ...


class StreamLearner:
    """Learns from a stream. Subclasses make the stepper.

    Args:
        algorithm: its functions that are not phases.
        batch: the stream's rows.
        part_size: units of one part of a minibatch.
        parts: parts of a minibatch, whose gradients are averaged before a step.
    """

    _stepper: Stepper

    def __init__(self, algorithm: AroundPhases, batch: Batch, part_size: int, parts: int) -> None:
        self._algorithm = algorithm
        self._batch = batch
        self._parts = parts
        self._rows = batch.buffers(part_size * parts)

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
        self._batch.prepare(slots, lambda rollout: self._algorithm.targets(state, self._judged(rollout)))

    def _judged(self, rollout: Arrays) -> Arrays:
        """The rollout of one slot, with what the current parameters make of it if the algorithm needs that."""
        if self._algorithm.judge is None:
            return rollout
        tensors = self._stepper.tensors()
        with torch.no_grad():
            found = self._algorithm.judge(tensors, _Sent(rollout, tensors["progress"].device))
        return {**rollout, **{name: values.cpu().numpy() for name, values in found.items()}}

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
            minibatch = dict(zip(self._rows, values, strict=True))
            minibatch |= self._algorithm.whole(minibatch)
            # A part of padding alone has no mean. Padding is at the end, so such parts are the last ones.
            parts = [part for part, count in zip(in_parts(minibatch, self._parts), counts, strict=True) if count]
            self._stepper.step(parts, [count for count in counts if count], None)

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._stepper.metrics()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        state = _LazyState(self._stepper.tensors())
        changed: Arrays = {}
        for slot in slots:
            changed |= self._algorithm.statistics(state, self._batch.rollout(slot))
            state.put(changed)
        self.load(changed)


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

    def put(self, arrays: Mapping[str, Array]) -> None:
        """Replace the arrays of these names."""
        self._arrays.update(arrays)


class _Sent(Mapping[str, Tensor]):
    """Arrays as tensors on the learner's device. Each is sent there when it is used; most are never used."""

    def __init__(self, arrays: Arrays, device: torch.device) -> None:
        self._arrays = arrays
        self._device = device

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(self._arrays[name]).to(self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
