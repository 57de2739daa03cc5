"""The rows of a batch where they were written, and their targets: gathered by flat index, on the learner's device.

Owns the targets; reads everything else from the stream's shared memory. Chooses no rows.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.types import Array, Arrays, ArraySpec

__all__ = ["Batch"]

GATHER_BYTES = 1 << 22
"""Rows gathered in one go. More costs memory and cache; far fewer cost a call for each field and minibatch."""


class Batch:
    """All slots of a stream as one table of rows; flat row ``(slot * (T + 1) + t) * lanes + lane``."""

    def __init__(
        self, arrays: Mapping[str, Array], fields: Sequence[str], targets: Sequence[ArraySpec], device: torch.device
    ) -> None:
        """Lay out the rows.

        Args:
            arrays: field -> ``[slots, T + 1, lanes, ...]``.
            fields: what a minibatch holds, targets included.
            targets: specs of the target fields, per lane.
            device: where rows are gathered.
        """
        self._arrays = dict(arrays)
        leading = arrays["reward"].shape
        self._targets = {spec.name: np.zeros((*leading, *spec.shape), spec.dtype) for spec in targets}
        self._host = {name: _rows(name, self._targets.get(name, arrays.get(name))) for name in fields}
        self._device = device
        self._rows_per_slot = leading[1] * leading[2]
        self._copies = {} if device.type == "cpu" else {name: _Copy(rows, device) for name, rows in self._host.items()}
        self.row_bytes = sum(rows[0].nbytes for rows in self._host.values())

    def rollout(self, slot: int) -> Arrays:
        """Every array of one slot, its targets included, as views without the bootstrap row's targets."""
        views = {name: values[slot] for name, values in self._arrays.items()}
        return views | {name: values[slot, :-1] for name, values in self._targets.items()}

    def stage(self, slots: Sequence[int]) -> None:
        """Bring the rows of these slots to the device; nothing to do where that is the CPU."""
        for copy in self._copies.values():
            for slot in slots:
                copy.send(slice(slot * self._rows_per_slot, (slot + 1) * self._rows_per_slot))

    def gather(self, indices: Array, weights: Array) -> dict[str, Tensor]:
        """Field -> ``[n * m, ...]`` and ``weight``, for ``indices`` ``[n, m]``.

        Rows of weight 0 are replaced by the first of their minibatch, so that what they hold is always finite.
        """
        if weights.min() == 0.0:
            indices = np.where(weights > 0.0, indices, indices[:, :1])
        rows = torch.from_numpy(indices.reshape(-1)).to(self._device)
        source = {name: copy.device for name, copy in self._copies.items()} or self._host
        found = {name: values.index_select(0, rows) for name, values in source.items()}
        found["weight"] = torch.from_numpy(weights.reshape(-1)).to(self._device)
        return found

    def chunks(self, indices: Array, weights: Array) -> "list[tuple[Array, Array]]":
        """The minibatches in parts of at most ``GATHER_BYTES`` of rows, and at least one minibatch each."""
        count = max(1, GATHER_BYTES // (self.row_bytes * indices.shape[1]))
        return [(indices[i : i + count], weights[i : i + count]) for i in range(0, len(indices), count)]


class _Copy:
    """A field's rows on another device, sent there through pinned memory."""

    def __init__(self, rows: Tensor, device: torch.device) -> None:
        self._host = rows
        self._staging = torch.empty_like(rows, pin_memory=device.type == "cuda")
        self.device = torch.empty_like(rows, device=device)

    def send(self, part: slice) -> None:
        self._staging[part].copy_(self._host[part])
        self.device[part].copy_(self._staging[part], non_blocking=True)


def _rows(name: str, values: Array | None) -> Tensor:
    """``[slots * (T + 1) * lanes, ...]`` over the same memory."""
    if values is None:
        raise KeyError(f"a minibatch needs {name}, which the stream does not hold")
    flat = values.reshape(-1, *values.shape[3:])
    if not np.shares_memory(flat, values):
        raise ValueError(f"{name} is not one contiguous array over all slots")
    return torch.from_numpy(flat)
