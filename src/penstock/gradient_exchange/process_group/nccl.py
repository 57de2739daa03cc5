"""Rounds from GPU to GPU: NCCL."""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import AllgatherOptions, BroadcastOptions, TCPStore

from penstock.gradient_exchange.process_group.transport import ROUND_LIMIT, UnderWay

__all__ = ["OnGpus", "connect"]

LOOK_S = 0.0002
"""How often a member looks whether a round on GPUs is over."""


def connect(store: TCPStore, me: int, members: int, device: str) -> "OnGpus":
    """Connect to all members. This one computes on ``device``.

    Raises:
        RuntimeError: a member does not answer.
    """
    # By itself torch ends the process if a member is lost. Here the others leave, and meet anew.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    nccl: Any = distributed.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = ROUND_LIMIT  # noqa: SLF001
    return OnGpus(nccl(store, me, members, options), torch.device(device))


class OnGpus:
    """One member's end; implements `penstock.gradient_exchange.process_group.transport.Group`.

    Args:
        group: it carries tensors of ``device``.
        device: of this member.
    """

    def __init__(self, group: Any, device: torch.device) -> None:  # noqa: ANN401 - a class of torch without stubs
        self._group = group
        self._device = device

    def tell(self, values: Tensor) -> UnderWay:
        """As `Group.tell`."""
        there, options = values.to(self._device, copy=True), BroadcastOptions()
        options.timeout = ROUND_LIMIT
        return _Landing(self._group.broadcast([there], options), [there], [values])

    def gather(self, mine: Tensor, into: Sequence[Tensor]) -> UnderWay:
        """As `Group.gather`."""
        return self._gather(mine, dict(enumerate(into)))

    def swap(self, mine: Tensor, into: Mapping[int, Tensor]) -> UnderWay:
        """As `Group.swap`. All GPUs get it, but only what is wanted is copied into main memory.

        So all members have to swap at once. Sends between single GPUs would need a connection of NCCL for each pair.
        """
        return self._gather(mine, into)

    def _gather(self, mine: Tensor, into: Mapping[int, Tensor]) -> UnderWay:
        there = [torch.empty_like(mine, device=self._device) for _ in range(self._group.size())]
        brought, options = mine.to(self._device, copy=True), AllgatherOptions()
        options.timeout = ROUND_LIMIT
        work = self._group.allgather([there], [brought], options)
        return _Landing(work, [there[member] for member in into], list(into.values()))

    def end(self) -> bool:
        """As `Group.end`. A round that waits for a lost member would hold up all other work of the GPU."""
        self._group.abort()
        return True


class _Landing:
    """A round on GPUs, whose result is copied into main memory at its end; implements `UnderWay`."""

    def __init__(self, work: Any, there: Sequence[Tensor], into: Sequence[Tensor]) -> None:  # noqa: ANN401 - as above
        self._work = work
        self._there = there
        self._into = into

    def is_completed(self) -> bool:
        """As `UnderWay.is_completed`."""
        return bool(self._work.is_completed())

    def wait(self, timeout: timedelta) -> bool:
        """As `UnderWay.wait`. It looks again and again, because NCCL's own wait does not keep to the time."""
        until = time.monotonic() + timeout.total_seconds()
        while not self._work.is_completed():
            if time.monotonic() > until:
                raise RuntimeError("the round is not over")
            time.sleep(LOOK_S)
        self._work.wait()
        for there, into in zip(self._there, self._into, strict=True):
            into.copy_(there)
        return True
