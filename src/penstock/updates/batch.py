"""Gathers minibatches of rows or of whole lanes, from the rows of a stream and their targets, on the learner's device.

Owns the targets; reads all other fields from the stream's shared memory. Chooses neither rows nor lanes.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.types import Array, Arrays, ArraySpec
from penstock.updates.rows import Rows
from penstock.updates.settings import UpdaterSettings

__all__ = ["Batch", "LaneBatch", "batch_of"]

GATHER_BYTES = 1 << 22
"""Bytes gathered at a time: few enough to stay in cache, enough that the calls for each field cost little."""
MAX_MINIBATCHES = 256


def batch_of(settings: UpdaterSettings, arrays: Mapping[str, Array]) -> "Batch":
    """The batch of a learner from a stream; ``arrays``: field -> ``[slots, T + 1, lanes, ...]``."""
    spec, device = settings.spec, torch.device(settings.device)
    staged = device.type != "cpu"
    if spec.unit == "row":
        return Batch(arrays, spec.minibatch, spec.targets, device, staged=staged)
    carry = tuple(part.name for part in spec.policy.carry)
    return LaneBatch(arrays, spec.minibatch, spec.targets, device, staged=staged, per_lane=carry)


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
        per_lane: Sequence[str] = (),
    ) -> None:
        """Lay out the rows.

        Args:
            arrays: field -> ``[slots, T + 1, lanes, ...]``.
            fields: fields of a minibatch, targets included.
            targets: specs of the target fields, per lane.
            device: rows are gathered on it.
            staged: keep a copy of the rows on the device, if it cannot read the stream's memory.
            per_lane: fields that a slot holds once for each lane, ``[slots, lanes, ...]``.
        """
        self.per_lane = tuple(per_lane)
        """Fields that a slot holds once for each lane."""
        self._rows = Rows(arrays, fields, targets, per_lane)
        self.targets = self._rows.targets
        """Names of the target fields."""
        self._host = {name: torch.from_numpy(values) for name, values in self._rows.flat.items()}
        self._device = device
        self._copies = {name: _Copy(rows, device) for name, rows in self._host.items()} if staged else {}
        self._unit_bytes = sum(rows[0].nbytes for rows in self._host.values())

    def prepare(self, slots: Sequence[int], targets: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Compute the targets of these slots, each from its own rollout, and bring their rows to the device."""
        for slot in slots:
            self._rows.prepare(slot, targets)
            for copy in self._copies.values():
                copy.send(slot, self._rows.slots)

    def rollout(self, slot: int) -> Arrays:
        """Every array of one slot as views: ``[T + 1, B, ...]``, and its targets ``[T, B, ...]``."""
        return self._rows.rollout(slot)

    def capacity(self, size: int) -> int:
        """How many minibatches of ``size`` units are gathered at a time."""
        return min(MAX_MINIBATCHES, max(1, GATHER_BYTES // (self._unit_bytes * size)))

    def buffers(self, size: int) -> dict[str, Tensor]:
        """Buffers for ``capacity`` minibatches: field -> ``[capacity, size, ...]``, and ``weight``."""
        count = self.capacity(size)
        fields = {name: rows.new_zeros((count, size, *rows.shape[1:])) for name, rows in self._host.items()}
        fields["weight"] = torch.zeros((count, size))
        return {name: values.to(self._device) for name, values in fields.items()}

    def gather(self, indices: Array, weights: Array, out: Mapping[str, Tensor]) -> Array:
        """Write the units ``indices`` ``[n, m]`` to the front of ``out``, the result of ``buffers(m)``.

        A unit of weight 0 is replaced by the first one of its minibatch, so that its numbers are always finite.

        Returns:
            The ``weight`` of the minibatches, on the CPU.
        """
        if weights.min() == 0.0:
            indices = np.where(weights > 0.0, indices, indices[:, :1])
        rows = self._sent(indices)
        for name, values in self._source().items():
            torch.index_select(values, 0, rows, out=out[name][: len(indices)].flatten(0, 1))
        out["weight"][: len(indices)] = torch.from_numpy(weights)
        return weights

    def _source(self) -> Mapping[str, Tensor]:
        """The rows on the learner's device."""
        return {name: copy.device for name, copy in self._copies.items()} or self._host

    def _sent(self, indices: Array) -> Tensor:
        """Indices as one vector on the learner's device."""
        return torch.from_numpy(np.ascontiguousarray(indices).reshape(-1)).to(self._device)


class LaneBatch(Batch):
    """All lanes of a stream's slots. The flat index of its row 0 addresses a lane.

    Fields arrive as ``[m, T + 1, ...]``, targets and ``weight`` as ``[m, T]``, fields per lane as ``[m, ...]``.
    ``weight`` is 0 for rows that are not valid, and for all rows of padding.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        fields: Sequence[str],
        targets: Sequence[ArraySpec],
        device: torch.device,
        *,
        staged: bool,
        per_lane: Sequence[str] = (),
    ) -> None:
        """As `Batch`."""
        super().__init__(arrays, fields, targets, device, staged=staged, per_lane=per_lane)
        steps = self._rows.steps
        self._valid = arrays["valid"].reshape(-1)
        self._lengths = {spec.name: (steps,) for spec in targets} | dict.fromkeys(per_lane, ())
        """Field -> how many rows of a lane it has; a field that is missing here has T + 1."""

    def capacity(self, size: int) -> int:
        """How many minibatches of ``size`` lanes are gathered at a time."""
        return super().capacity(size * (self._rows.steps + 1))

    def buffers(self, size: int) -> dict[str, Tensor]:
        """As `Batch.buffers`, for minibatches of ``size`` lanes."""
        count, steps = self.capacity(size), self._rows.steps
        fields = {
            name: rows.new_zeros((count, size, *self._lengths.get(name, (steps + 1,)), *rows.shape[1:]))
            for name, rows in self._host.items()
        }
        fields["weight"] = torch.zeros((count, size, steps))
        return {name: values.to(self._device) for name, values in fields.items()}

    def gather(self, indices: Array, weights: Array, out: Mapping[str, Tensor]) -> Array:
        """Write the lanes ``indices`` ``[n, m]`` to the front of ``out``; as `Batch.gather`."""
        if weights.min() == 0.0:
            indices = np.where(weights > 0.0, indices, indices[:, :1])
        count, rows = len(indices), self._rows
        through = indices[:, :, None] + np.arange(rows.steps + 1) * rows.lanes
        places = {
            (): self._sent(indices // rows.per_slot * rows.lanes + indices % rows.lanes),
            (rows.steps,): self._sent(through[:, :, :-1]),
        }
        whole = self._sent(through)
        for name, values in self._source().items():
            place = out[name][:count]
            length = self._lengths.get(name)
            at = whole if length is None else places[length]
            torch.index_select(values, 0, at, out=place.view(len(at), *values.shape[1:]))
        weight: Array = weights[:, :, None] * self._valid[through[:, :, :-1]]
        out["weight"][:count] = torch.from_numpy(weight)
        return weight


class _Copy:
    """A field's rows on another device, sent there through pinned memory."""

    def __init__(self, rows: Tensor, device: torch.device) -> None:
        self._host = rows
        self._staging = torch.empty_like(rows, pin_memory=device.type == "cuda")
        self.device = torch.empty_like(rows, device=device)

    def send(self, slot: int, slots: int) -> None:
        """Start copying the rows of one slot of the batch. All later work of the device waits for the copy."""
        rows = len(self._host) // slots
        part = slice(slot * rows, (slot + 1) * rows)
        self._staging[part].copy_(self._host[part])
        self.device[part].copy_(self._staging[part], non_blocking=True)
