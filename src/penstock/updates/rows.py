"""All rows of a stream's slots by flat index, and the targets of their rollouts. Imports no torch.

Owns the targets; reads all other fields from the stream's shared memory. Chooses no rows.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from penstock.types import Array, Arrays, ArraySpec

__all__ = ["Rows", "Targeted"]


class Rows:
    """Rows by flat index ``(slot * (T + 1) + t) * lanes + lane``.

    Args:
        arrays: field -> ``[slots, T + 1, lanes, ...]``.
        fields: fields of a minibatch, targets included.
        targets: specs of the target fields, per lane.
        per_lane: those of the fields that a slot holds once for each lane, ``[slots, lanes, ...]``.

    Raises:
        KeyError: the stream lacks a field.
        ValueError: a field is not one contiguous array over all slots.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        fields: Sequence[str],
        targets: Sequence[ArraySpec],
        per_lane: Sequence[str] = (),
    ) -> None:
        self._arrays = dict(arrays)
        leading = arrays["reward"].shape
        self._targets = {spec.name: np.zeros((*leading, *spec.shape), spec.dtype) for spec in targets}
        whole = {**arrays, **self._targets}
        self.flat = {name: _flat(name, whole.get(name), 2 if name in per_lane else 3) for name in fields}
        """Field -> ``[slots * (T + 1) * lanes, ...]``, or per lane ``[slots * lanes, ...]``, over the same memory."""
        self.targets = frozenset(self._targets)
        """Names of the target fields."""
        self.slots, self.steps, self.lanes = leading[0], leading[1] - 1, leading[2]
        self.per_slot = leading[1] * leading[2]
        self.count = leading[0] * self.per_slot
        self.learned_per_slot = self.per_slot - leading[2]
        """Rows of a slot that can be learned from: all except the bootstrap rows."""

    def prepare(self, slot: int, targets: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Compute the targets of one slot from its rollout.

        Raises:
            ValueError: a target has another shape than the algorithm's spec says.
        """
        rollout = self.rollout(slot)
        for name, values in targets(rollout).items():
            if np.shape(values) != rollout[name].shape:
                shapes = f"{np.shape(values)}; its spec says {rollout[name].shape}"
                raise ValueError(f"the algorithm's target {name} has the shape {shapes}")
            rollout[name][...] = values

    def rollout(self, slot: int) -> Arrays:
        """Every array of one slot as views: ``[T + 1, B, ...]``, and its targets ``[T, B, ...]``."""
        views = {name: values[slot] for name, values in self._arrays.items()}
        return views | {name: values[slot, :-1] for name, values in self._targets.items()}


class Targeted(Mapping[str, Array]):
    """A rollout whose targets are computed at their first use. Most algorithms have no statistics of them.

    Args:
        rollout: all fields. The targets are not computed yet.
        targets: names of the targets.
        compute: computes them in place.
    """

    def __init__(self, rollout: Arrays, targets: Collection[str], compute: Callable[[], None]) -> None:
        self._rollout = rollout
        self._targets = targets
        self._compute: Callable[[], None] | None = compute

    def __getitem__(self, name: str) -> Array:
        if name in self._targets and self._compute is not None:
            self._compute()
            self._compute = None
        return self._rollout[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rollout)

    def __len__(self) -> int:
        return len(self._rollout)


def _flat(name: str, values: Array | None, leading: int) -> Array:
    if values is None:
        raise KeyError(f"a minibatch needs {name}, which the stream does not have")
    flat = values.reshape(-1, *values.shape[leading:])
    if not np.shares_memory(flat, values):
        raise ValueError(f"{name} is not one contiguous array over all slots")
    return flat
