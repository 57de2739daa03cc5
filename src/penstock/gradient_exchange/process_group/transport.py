"""What carries the rounds of a process group: gloo by way of main memory, or NCCL from GPU to GPU.

NCCL takes each GPU once, so it is chosen where every member computes on a GPU of its own. Finds no members.
"""

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import AllgatherOptions, BroadcastOptions, ProcessGroupGloo, TCPStore

__all__ = ["Group", "OnGpus", "Transport", "UnderWay", "chosen", "connected", "gpu_of", "try_to_end"]

Transport: TypeAlias = Literal["gloo", "nccl"]
CONNECT_LIMIT = timedelta(seconds=20)
"""How long members try to connect by gloo once all are there. None of them gives a sign of life meanwhile."""
ROUND_LIMIT = timedelta(hours=1)
"""How long torch waits for others. Long, because lost members are noticed otherwise: see `Rendezvous.broken`."""
LOOK_S = 0.0002
"""How often a member looks whether a round on GPUs is over."""


class UnderWay(Protocol):
    """What is used of torch's ``Work``."""

    def is_completed(self) -> bool:
        """True once it is over, also if it failed."""
        ...

    def wait(self, timeout: timedelta) -> bool:
        """Wait for its end.

        Raises:
            RuntimeError: it failed, or the time is up.
        """
        ...


class Group(Protocol):
    """What is used of a process group of torch. Its stubs do not name these methods."""

    def broadcast(self, tensors: list[Tensor], opts: BroadcastOptions) -> UnderWay:
        """Send the keeper's tensor to all."""
        ...

    def allgather(
        self, output_tensors: list[list[Tensor]], input_tensors: list[Tensor], opts: AllgatherOptions
    ) -> UnderWay:
        """Give all members the tensors of all."""
        ...


def gpu_of(device: str) -> str:
    """The GPU of a device by a name that no other GPU has; empty if it is none, or if torch has no NCCL here."""
    if not device.startswith("cuda") or not distributed.is_nccl_available():
        return ""
    return str(torch.cuda.get_device_properties(torch.device(device)).uuid)


def chosen(gpus: Sequence[str]) -> Transport:
    """The transport for members on these GPUs, as `gpu_of` names them."""
    return "nccl" if all(gpus) and len(set(gpus)) == len(gpus) else "gloo"


def connected(transport: str, store: TCPStore, me: int, members: int, *, address: str, device: str) -> Group:
    """Connect to all members. By gloo each listens at its own address.

    Raises:
        RuntimeError: a member does not answer.
    """
    return _by_nccl(store, me, members, device) if transport == "nccl" else _by_gloo(store, me, members, address)


def _by_gloo(store: TCPStore, me: int, members: int, address: str) -> Group:
    # By itself, gloo listens at the address of the machine's name. torch has no public way to name another one.
    gloo: Any = ProcessGroupGloo
    options = gloo._Options()  # noqa: SLF001
    options._devices = [gloo.create_device(hostname=address)]  # noqa: SLF001
    options._timeout = CONNECT_LIMIT  # noqa: SLF001
    group: Group = gloo(store, me, members, options)
    return group


def _by_nccl(store: TCPStore, me: int, members: int, device: str) -> Group:
    # By itself torch ends the process if a member is lost. Here the others leave, and meet anew.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    nccl: Any = distributed.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = ROUND_LIMIT  # noqa: SLF001
    return OnGpus(nccl(store, me, members, options), torch.device(device))


class OnGpus:
    """A group whose tensors travel from GPU to GPU; implements `Group` for tensors in main memory.

    Args:
        group: it carries tensors of ``device``.
        device: of this member.
    """

    def __init__(self, group: Any, device: torch.device) -> None:  # noqa: ANN401 - a class of torch without stubs
        self._group = group
        self._device = device

    def broadcast(self, tensors: list[Tensor], opts: BroadcastOptions) -> UnderWay:
        """As `Group.broadcast`."""
        there = [tensor.to(self._device, copy=True) for tensor in tensors]
        return _Landing(self._group.broadcast(there, opts), there, tensors)

    def allgather(
        self, output_tensors: list[list[Tensor]], input_tensors: list[Tensor], opts: AllgatherOptions
    ) -> UnderWay:
        """As `Group.allgather`."""
        there = [torch.empty_like(tensor, device=self._device) for tensor in output_tensors[0]]
        brought = [tensor.to(self._device, copy=True) for tensor in input_tensors]
        return _Landing(self._group.allgather([there], brought, opts), there, output_tensors[0])

    def abort(self) -> None:
        """End all rounds. One that waits for a lost member would hold up all other work of the GPU."""
        self._group.abort()


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


def try_to_end(group: Group | None) -> bool:
    """End a group whose round waits for a lost member. False if it cannot be ended: then keep it.

    A group of gloo would end only when the round's time is up.
    """
    if isinstance(group, OnGpus):
        group.abort()
        return True
    return False
