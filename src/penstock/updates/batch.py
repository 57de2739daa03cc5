"""Gathers minibatches, by flat index, from the rows of a stream and their targets, on the learner's device.

Owns the targets; reads all other fields from the stream's shared memory. Chooses no rows.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.types import Array, Arrays, ArraySpec
from penstock.updates.rows import Rows

__all__ = ["Batch"]

GATHER_BYTES = 1 << 22
"""Bytes gathered at a time: few enough to stay in cache, enough that the calls for each field cost little."""
MAX_MINIBATCHES = 256


class Batch:
    """All rows of a stream's slots, by flat index ``(slot * (T + 1) + t) * lanes + lane``."""

    def __init__(
        self,
        arrays: Mapping[str, Array],
        fields: Sequence[str],
        targets: Sequence[ArraySpec],
        device: torch.device,
        *,
        staged: bool,
    ) -> None:
        """Lay out the rows.

        Args:
            arrays: field -> ``[slots, T + 1, lanes, ...]``.
            fields: fields of a minibatch, targets included.
            targets: specs of the target fields, per lane.
            device: rows are gathered on it.
            staged: keep a copy of the rows on the device, if it cannot read the stream's memory.
        """
        self._rows = Rows(arrays, fields, targets)
        self._host = {name: torch.from_numpy(values) for name, values in self._rows.flat.items()}
        self._device = device
        self._copies = {name: _Copy(rows, device) for name, rows in self._host.items()} if staged else {}
        self._row_bytes = sum(rows[0].nbytes for rows in self._host.values())

    def prepare(self, slots: Sequence[int], targets: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Compute the targets of these slots, each from its own rollout, and bring their rows to the device."""
        for slot in slots:
            self._rows.prepare(slot, targets)
            for copy in self._copies.values():
                copy.send(slice(slot * self._rows.per_slot, (slot + 1) * self._rows.per_slot))

    def rollout(self, slot: int) -> Arrays:
        """Every array of one slot as views: ``[T + 1, B, ...]``, and its targets ``[T, B, ...]``."""
        return self._rows.rollout(slot)

    def capacity(self, size: int) -> int:
        """How many minibatches of ``size`` rows are gathered at a time."""
        return min(MAX_MINIBATCHES, max(1, GATHER_BYTES // (self._row_bytes * size)))

    def buffers(self, size: int) -> dict[str, Tensor]:
        """Buffers for ``capacity`` minibatches: field -> ``[capacity, size, ...]``, and ``weight``."""
        count = self.capacity(size)
        fields = {name: rows.new_zeros((count, size, *rows.shape[1:])) for name, rows in self._host.items()}
        fields["weight"] = torch.zeros((count, size))
        return {name: values.to(self._device) for name, values in fields.items()}

    def gather(self, indices: Array, weights: Array, out: Mapping[str, Tensor]) -> None:
        """Write the rows ``indices`` ``[n, m]`` to the front of ``out``, the result of ``buffers(m)``.

        A row of weight 0 is replaced by the first row of its minibatch, so that its numbers are always finite.
        """
        if weights.min() == 0.0:
            indices = np.where(weights > 0.0, indices, indices[:, :1])
        count = len(indices)
        rows = torch.from_numpy(np.ascontiguousarray(indices).reshape(-1)).to(self._device)
        source = {name: copy.device for name, copy in self._copies.items()} or self._host
        for name, values in source.items():
            torch.index_select(values, 0, rows, out=out[name][:count].flatten(0, 1))
        out["weight"][:count] = torch.from_numpy(weights)


class _Copy:
    """A field's rows on another device, sent there through pinned memory."""

    def __init__(self, rows: Tensor, device: torch.device) -> None:
        self._host = rows
        self._staging = torch.empty_like(rows, pin_memory=device.type == "cuda")
        self.device = torch.empty_like(rows, device=device)

    def send(self, part: slice) -> None:
        """Start copying these rows. All later work of the device waits for the copy."""
        self._staging[part].copy_(self._host[part])
        self.device[part].copy_(self._staging[part], non_blocking=True)
