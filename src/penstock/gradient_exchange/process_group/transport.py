"""THE contract of what carries the rounds of a process group, and the choice of one. Finds no members.

- `penstock.gradient_exchange.process_group.gloo`: over TCP, by way of main memory.
- `penstock.gradient_exchange.process_group.nccl`: from GPU to GPU.

NCCL takes each GPU once, so it is chosen where every member computes on a GPU of its own.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor, distributed

__all__ = ["ROUND_LIMIT", "Group", "TransportName", "UnderWay", "chosen", "gpu_of"]

TransportName: TypeAlias = Literal["gloo", "nccl"]
ROUND_LIMIT = timedelta(hours=1)
"""How long torch waits for others. Long, because lost members are noticed otherwise: see `Rendezvous.broken`."""


class UnderWay(Protocol):
    """Tensors on their way. No other method of a group waits for them."""

    def is_completed(self) -> bool:
        """True once it is over, also if it failed."""
        ...

    def wait(self, timeout: timedelta) -> bool:
        """Wait for its end.

        Raises:
            RuntimeError: it failed, because a member is lost; or the time is up.
        """
        ...


class Group(Protocol):
    """One member's end of a group: of members that have met and are connected. Tensors are in main memory.

    If a member is lost, each `UnderWay` that waits for it fails, at once or later. Then the group is given up.
    """

    def tell(self, values: Tensor) -> UnderWay:
        """Send the keeper's tensor to all, or get it."""
        ...

    def gather(self, mine: Tensor, into: Sequence[Tensor]) -> UnderWay:
        """Give a tensor to all members, and get theirs, in order. All are of the same size."""
        ...

    def swap(self, mine: Tensor, into: Mapping[int, Tensor]) -> UnderWay:
        """Give a tensor to these other members, and get theirs. They name this one, too. All are of the same size.

        All members swap at once, each with its own others.
        """
        ...

    def end(self) -> bool:
        """End what waits for a lost member. False if that cannot be ended: then keep this group."""
        ...


def gpu_of(device: str) -> str:
    """The GPU of a device by a name that no other GPU has; empty if it is none, or if torch has no NCCL here."""
    if not device.startswith("cuda") or not distributed.is_nccl_available():
        return ""
    return str(torch.cuda.get_device_properties(torch.device(device)).uuid)


def chosen(gpus: Sequence[str]) -> TransportName:
    """The transport for members on these GPUs, as `gpu_of` names them."""
    return "nccl" if all(gpus) and len(set(gpus)) == len(gpus) else "gloo"
