"""What is done with the rollouts of a stream, whatever steps the state: targets, minibatches, running statistics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from penstock.types import Array, Arrays
from penstock.updates.batch import Batch
from penstock.updates.inbox import in_parts
from penstock.updates.learning import Stepper

__all__ = ["StreamLearner"]


class AroundPhases(Protocol):
    """What is computed once for each rollout, or once for each minibatch: of an algorithm, all that is no phase."""

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
    """Learns from a stream; whoever derives from it holds a stepper.

    Args:
        algorithm: says what is computed beside the phases.
        batch: the stream's rows.
        part_size: rows of one part of a minibatch.
        parts: of a minibatch: their gradients are averaged before a step.
    """

    _stepper: Stepper

    def __init__(self, algorithm: AroundPhases, batch: Batch, part_size: int, parts: int) -> None:
        self._algorithm = algorithm
        self._batch = batch
        self._parts = parts
        self._rows = batch.buffers(part_size * parts)

    def load(self, state: Mapping[str, Array]) -> None:
        """Take a whole state, or the arrays of it that are named."""
        self._stepper.load(state)

    def state(self) -> Arrays:
        """The state's named arrays on the CPU."""
        return self._stepper.arrays()

    def begin(self, slots: Sequence[int], progress: float) -> None:
        """Compute the targets of the rollouts in ``slots``."""
        self._stepper.progress(progress)
        state = _Asked(self._stepper.tensors())
        self._batch.prepare(slots, lambda rollout: self._algorithm.targets(state, rollout))

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices``."""
        room = len(self._rows["weight"])
        for start in range(0, len(indices), room):
            part = slice(start, start + room)
            self._batch.gather(indices[part], weights[part], self._rows)
            self._learn(weights[part])

    def _learn(self, weights: Array) -> None:
        """Step by the minibatches that were gathered last, whose rows have these weights: ``[minibatches, rows]``."""
        columns = [values[: len(weights)].unbind() for values in self._rows.values()]
        of_parts = weights.reshape(len(weights), self._parts, -1).sum(2)
        for values, counts in zip(zip(*columns, strict=True), of_parts.tolist(), strict=True):
            minibatch = dict(zip(self._rows, values, strict=True))
            minibatch |= self._algorithm.whole(minibatch)
            # A part that is padding alone has no mean; padding stands at the end.
            parts = [part for part, count in zip(in_parts(minibatch, self._parts), counts, strict=True) if count]
            self._stepper.step(parts, [count for count in counts if count], None)

    def metrics(self) -> dict[str, float]:
        """Means over the minibatches since the last call."""
        return self._stepper.metrics()

    def finish(self, slots: Sequence[int]) -> None:
        """Merge the running statistics of the rollouts in ``slots``, in that order."""
        state = _Asked(self._stepper.tensors())
        changed: Arrays = {}
        for slot in slots:
            changed |= self._algorithm.statistics(state, self._batch.rollout(slot))
            state.put(changed)
        self.load(changed)


class _Asked(Mapping[str, Array]):
    """A state on the CPU, whose arrays are copied from its device when they are asked for first: most never are.

    Args:
        tensors: the state on its device; it must not change meanwhile.
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
        """Let these stand in the place of the arrays of their names."""
        self._arrays.update(arrays)
