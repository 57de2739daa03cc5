"""Brings minibatches from arrays of this process to the learner's device, in parts of one size."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from penstock.ops.losses import Mean, mean_by
from penstock.types import Array, Arrays, ArraySpec

__all__ = ["AcrossMinibatch", "Inbox", "in_parts"]

AcrossMinibatch: TypeAlias = Callable[[Mapping[str, Tensor], Mean], Mapping[str, Tensor]]
"""As `penstock.algorithm.Algorithm.across_minibatch`."""


def in_parts(minibatch: Mapping[str, Tensor], count: int) -> list[dict[str, Tensor]]:
    """Cut arrays ``[count m, ...]`` into ``count`` parts of arrays ``[m, ...]``, in order, as views."""
    if count == 1:
        return [dict(minibatch)]
    columns = [values.reshape(count, -1, *values.shape[1:]).unbind() for values in minibatch.values()]
    return [dict(zip(minibatch, part, strict=True)) for part in zip(*columns, strict=True)]


class Inbox:
    """Brings minibatches to a device.

    Args:
        specs: arrays of one row.
        size: rows of a part.
        parts: parts of a minibatch.
        device: the learner's.
        across_minibatch: changes a minibatch before it is cut into parts; ``None``: the updater does that.
        rows: ``[size, ...]`` each: the fixed arrays from which the updater reads a part, if it has such.
    """

    def __init__(
        self,
        specs: Sequence[ArraySpec],
        size: int,
        parts: int,
        device: torch.device,
        *,
        across_minibatch: AcrossMinibatch | None,
        rows: dict[str, Tensor] | None = None,
    ) -> None:
        self._specs = specs
        self._size = size
        self._parts = parts
        self._device = device
        self._across_minibatch = across_minibatch
        self._copies: dict[str, _Copy] = {}
        self._rows = rows if parts == 1 and device.type == "cpu" else None
        self._in_place: Arrays | None = None

    def buffers(self) -> Arrays:
        """New arrays for a minibatch, ``[parts size, ...]``. A GPU reads them in place.

        On the CPU the first ones are ``rows``, if a minibatch has one part: no copy is needed then. The updater copies
        any other minibatch into them. So they may only be filled while the updater is not running.
        """
        if self._rows is not None and self._in_place is None:
            self._in_place = {name: values.numpy() for name, values in self._rows.items()}
            return self._in_place
        rows, pinned = self._parts * self._size, self._device.type == "cuda"
        return {
            spec.name: torch.zeros((rows, *spec.shape), dtype=getattr(torch, spec.dtype), pin_memory=pinned).numpy()
            for spec in self._specs
        }

    def take(self, minibatch: Mapping[str, Array]) -> list[dict[str, Tensor]]:
        """The parts of a minibatch ``[parts size, ...]``. Views on the CPU; on a GPU valid until the next call.

        Raises:
            ValueError: the minibatch has another size.
        """
        if self._rows is not None and minibatch is self._in_place:
            return [self._rows]
        rows = len(minibatch["weight"])
        if rows != self._parts * self._size:
            raise ValueError(f"a minibatch of {rows} rows is not {self._parts} of {self._size}")
        here = {name: self._send(name, torch.from_numpy(values)) for name, values in minibatch.items()}
        if self._across_minibatch is not None:
            here |= self._across_minibatch(here, mean_by(here["weight"]))
        return in_parts(here, self._parts)

    def weighed(self, minibatch: Mapping[str, Array]) -> tuple[list[dict[str, Tensor]], list[float]]:
        """As `take`, with the sum of each part's ``weight``."""
        parts = self.take(minibatch)
        return parts, minibatch["weight"].reshape(len(parts), -1).sum(1).tolist()

    def _send(self, name: str, values: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return values
        if name not in self._copies or self._copies[name].shape != values.shape:
            self._copies[name] = _Copy(values, self._device)
        return self._copies[name].send(values)


class _Copy:
    """One field on another device, sent there through pinned memory."""

    def __init__(self, values: Tensor, device: torch.device) -> None:
        self.shape = values.shape
        self._staging = torch.empty_like(values, pin_memory=True)
        self._device = torch.empty_like(values, device=device)
        self._sent = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def send(self, values: Tensor) -> Tensor:
        """Start copying. All later work of the device waits for the copy."""
        # Wait for the previous copy: its source may be overwritten once the next but one minibatch is taken.
        self._sent.synchronize()
        if not values.is_pinned():
            values = self._staging.copy_(values)
        self._device.copy_(values, non_blocking=True)
        self._sent.record()
        return self._device
